"""A key at rest goes back to work only where a worker would make its call; else each door refuses it, and says why."""

import dataclasses
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from accept.catalogues import changed, without
from fix_accept import Acceptor
from fix_api import client
from fix_spine import Spine
from fix_sql import query
from producers.application import Application, synced

from idem.errors import Unserved
from idem.outbox.domain.catalogue import Catalogue
from idem.sweeper.daemon import Sweeper


def moved(catalogue: Catalogue) -> Catalogue:
    """The operation goes to another account of its provider."""
    provider: Any = catalogue.providers["keyed"]
    account = dataclasses.replace(provider.accounts["keyed"], name="second")
    more = dataclasses.replace(provider, accounts={**provider.accounts, "second": account})
    known = dataclasses.replace(catalogue, providers={**catalogue.providers, "keyed": more})
    return changed(known, account="second")


CHANGES: dict[str, Callable[[Catalogue], Catalogue]] = {
    "the operation is gone": without,
    "it became inline": lambda c: changed(c, kind="inline"),
    "it became local": lambda c: changed(c, kind="local"),
    "it goes to another provider": lambda c: changed(c, provider="keyless", account="keyless"),
    "it goes to another account": moved,
}


def use(spine: Spine, catalogue: Catalogue) -> None:
    spine.catalogue = catalogue
    spine.acceptor = Acceptor(catalogue.operations, catalogue.providers)
    query(spine.url, "DELETE FROM idem.operations")
    synced(spine.url, catalogue)


async def by_http(spine: Spine) -> str:
    async with client(spine) as api:
        told = await api.ask()
    if told.status_code == 202:
        return "retrying"
    assert (told.status_code, told.json()["code"]) == (503, "not_executed"), told.text
    assert "is not configured as it was" in told.json()["detail"]
    assert int(told.headers["retry-after"]) >= 3600
    return "refused"


async def by_library(spine: Spine) -> str:
    try:
        return type(spine.accept()).__name__.lower()
    except Unserved as error:
        assert f"or run `idem intents cancel {error.intent_id}`" in str(error)
        return "refused"


async def by_sql(spine: Spine) -> str:
    try:
        return str(Application(spine.url).once().decision)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        assert "at rest" in str(error) and "idem db sync" in str(error.diag.message_hint)
        return "refused"


DOORS = {"http": by_http, "library": by_library, "sql": by_sql}

STATE = """
SELECT k.state, o.status, (SELECT count(*) FROM idem.evidence) AS evidence,
       (SELECT count(*) FROM idem.decisions_to_count) AS counted
  FROM idem.idempotency_keys k JOIN idem.outbox o USING (intent_id)
"""


@pytest.mark.parametrize("door", DOORS)
async def test_each_door_refuses_what_no_worker_would_call(spine: Spine, door: str) -> None:
    whole = spine.catalogue
    spine.accepted()
    await spine.all("UPDATE idem.outbox SET start_before = now() RETURNING id")
    await Sweeper(spine.database, spine.catalogue).run_once()
    before = await spine.one(STATE)
    assert (before["state"], before["status"]) == ("failed_retryable", "held")
    for what, change in CHANGES.items():
        use(spine, change(whole))
        assert await DOORS[door](spine) == "refused", what
        assert await spine.one(STATE) == before, f"{what}: nothing is written"
    use(spine, whole)
    assert await DOORS[door](spine) == "retrying", "it is as it was, and so is the key"
    assert (await spine.one(STATE))["status"] == "pending"
    assert (await spine.work()).claimed == 1
    assert spine.effects() == 1


async def test_a_row_that_its_caller_calls_is_for_no_worker(spine: Spine) -> None:
    """The operation was inline, and goes to a provider now: its retry is not told for ever that somebody is at it."""
    spine.accepted()
    with psycopg.connect(spine.url) as own:
        own.execute("SET session_replication_role = replica")
        own.execute("UPDATE idem.outbox SET status = 'held', inline = true")
        own.execute("UPDATE idem.idempotency_keys SET state = 'failed_retryable'")
        own.execute("UPDATE idem.intents SET state = 'failed_retryable'")
    synced(spine.url, spine.catalogue)
    for door, ask in DOORS.items():
        assert await ask(spine) == "refused", door
