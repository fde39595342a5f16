"""A key at rest goes back to work only where a worker would make its call; else each door refuses it, and says why."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from accept.catalogues import changed, without
from accept.doors import DOORS, PARAMS, use
from fix_spine import Spine

from idem.outbox.domain.catalogue import Catalogue


def moved(catalogue: Catalogue) -> Catalogue:
    """The operation goes to another account of its provider."""
    provider: Any = catalogue.providers["keyed"]
    account = dataclasses.replace(provider.accounts["keyed"], name="second")
    more = dataclasses.replace(provider, accounts={**provider.accounts, "second": account})
    return changed(dataclasses.replace(catalogue, providers={**catalogue.providers, "keyed": more}), account="second")


CHANGES: dict[str, Callable[[Catalogue], Catalogue]] = {
    "the operation is gone": without,
    "it became inline": lambda c: changed(c, kind="inline"),
    "it became local": lambda c: changed(c, kind="local"),
    "it goes to another provider": lambda c: changed(c, provider="keyless", account="keyless"),
    "it goes to another account": moved,
}


STATE = """
SELECT k.state, o.status, (SELECT count(*) FROM idem.evidence) AS evidence,
       (SELECT count(*) FROM idem.decisions_to_count) AS counted
  FROM idem.idempotency_keys k JOIN idem.outbox o USING (intent_id)
"""


@pytest.mark.parametrize("door", DOORS)
async def test_each_door_refuses_what_no_worker_would_call(spine: Spine, door: str) -> None:
    whole, ask = changed(spine.catalogue, card_data="allow"), DOORS[door]
    use(spine, whole)
    assert await ask(spine) == ("taken", None)
    await spine.rest()
    before = await spine.one(STATE)
    assert (before["state"], before["status"]) == ("failed_retryable", "held")
    for what, change in CHANGES.items():
        use(spine, change(whole))
        assert (await ask(spine))[0] == "refused", what
        assert await spine.one(STATE) == before, f"{what}: nothing is written"
    use(spine, whole)
    assert (await ask(spine))[0] == "taken", "it is as it was, and so is the key"
    assert (await spine.one(STATE))["state"] == "in_progress"
    assert await spine.works() == 1


async def test_a_row_that_its_caller_calls_is_for_no_worker(spine: Spine) -> None:
    """The operation was inline, and goes to a provider now: its retry is not told for ever that somebody is at it."""
    use(spine, changed(spine.catalogue, card_data="allow"))
    spine.accept(params=PARAMS)
    await spine.forced("UPDATE idem.outbox SET status = 'held', inline = true")
    for table in ("idempotency_keys", "intents"):
        await spine.forced(f"UPDATE idem.{table} SET state = 'failed_retryable'")
    for door, ask in DOORS.items():
        assert (await ask(spine))[0] == "refused", door
