"""Local steps that lost commits, a new provider key, a missing function or a dying process meet."""

import asyncio
import signal
from dataclasses import replace
from typing import Any

import pytest
from fix_forking import started
from flows import killed_local
from flows.local import local
from flows.order import step

from idem.outbox.recovery import quarantine
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.worker.worker import Worker


async def test_lost_commits_make_no_local_step_unknown(shop: Any) -> None:
    """Its writes were lost with them, so it runs again; the call after it inherits the doubt."""
    shop.define(local("ride"), step("charge", on_refusal="stop"))
    intent = shop.accepted()
    await shop.spine.run(quarantine.lost, shop.spine.catalogue, by="ann", reason="restored")
    row = await shop.row(intent)
    assert (row["status"], row["doubted_since"] is not None) == ("unfrozen", True)
    await shop.spine.sweep()
    assert (await shop.row(intent))["status"] == "unfrozen"
    worker = Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings)
    await worker._local_steps.once()
    await worker.close()
    row = await shop.row(intent)
    assert row["step_name"] == "charge" and row["doubted_since"] is not None


async def test_a_doubted_local_step_that_is_too_late_is_at_rest(shop: Any) -> None:
    shop.define(local("ride"))
    intent = shop.accepted()
    await shop.spine.execute("UPDATE idem.outbox SET doubted_since = statement_timestamp() - interval '1 hour'")
    await shop.spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=intent)
    await shop.spine.sweep()
    assert (await shop.row(intent))["status"] == "held"


async def test_a_local_step_has_no_provider_key_to_renew(shop: Any) -> None:
    shop.define(local("ride"))
    intent = shop.accepted()
    await shop.spine.rest()
    with pytest.raises(OperatorRefused, match="new provider key"):
        await shop.act("redrive", intent, new_provider_key=True)


async def test_a_redrive_under_a_new_key_asks_when_again(flows: Any) -> None:
    broken = [True]

    def when(params: Any, results: Any) -> bool:
        if broken[0]:
            raise ValueError("a bug")
        return False

    flows.define(step("charge"), step("ship", on_refusal="stop", when=when))
    intent = flows.accepted()
    await flows.work(times=2)
    assert await flows.spine.letters(intent) == ["unrenderable"]
    broken[0] = False
    await flows.act("redrive", intent, new_provider_key=True)
    await flows.work(times=2)
    assert flows.effects() == ["charge"]
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "skipped")]


@pytest.mark.parametrize("kind", ["missing", "a call now"])
async def test_a_function_that_no_process_has_holds_its_row_after_an_hour(shop: Any, kind: str) -> None:
    """Also where all that this process knows are functions, and where a call has the name of the function."""
    shop.define(local("ride"), local("pay", on_refusal="stop"))
    intent = shop.accepted()
    changed = (local("ride"),) if kind == "missing" else (local("ride"), step("pay", on_refusal="stop"))
    shop.define(*changed)
    only = {"order": shop.spine.catalogue.operations["order"]}
    shop.spine.catalogue = replace(shop.spine.catalogue, operations=only)
    await shop.work()
    assert (await shop.row(intent))["step_name"] == "pay"
    await shop.spine.forced("UPDATE idem.outbox SET available_at = now() - interval '3 hours'")
    await shop.work(times=2)
    assert (await shop.row(intent))["status"] == "held"
    assert await shop.spine.letters(intent) == ["unrenderable"]


async def test_a_known_function_that_waits_for_hours_is_not_missing(shop: Any) -> None:
    shop.define(local("ride"))
    intent = shop.accepted()
    await shop.spine.forced("UPDATE idem.outbox SET available_at = now() - interval '3 hours'")
    await shop.work()
    await shop.spine.expect(intent, state="completed", letters=[])


async def test_a_function_that_kills_its_process_rests_after_three(shop: Any) -> None:
    """It is counted before it runs, so that it does not stop a fleet for ever."""
    shop.define(*killed_local.steps(asynchronous=False))
    intent = shop.accepted()
    for died in range(3):
        process = started(killed_local.run, shop.spine.url, shop.spine.bank.url, "written", False)
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == -signal.SIGKILL
        row = await shop.row(intent)
        assert (row["status"], row["sweeps"]) == ("unfrozen", died + 1)
    await shop.spine.advance(5)
    await shop.work()
    assert (await shop.row(intent))["status"] == "held"
    assert await shop.spine.letters(intent) == ["crashes_worker"]
    assert await shop.rows() == []
    await shop.act("redrive", intent)
    await shop.work(times=3)
    assert [name for name, _ in await shop.rows()] == ["ride", "pay"]
