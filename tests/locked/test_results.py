"""A session that holds a row, its key, its intent or an entry of it keeps that row's result waiting, and no other."""

import asyncio
from contextlib import suppress
from uuid import UUID

import pytest
from fix_spine import Spine
from fix_steps import claim, report
from fix_waiting import until
from locked.sessions import holding

from idem.outbox.settle.report import Report
from idem.outbox.settle.settler import Settler
from idem.outcomes import NotExecuted, Outcome, Succeeded

ENTRY = "INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%(i)s, 'conflict')"
PATIENCE = 60.0


async def claimed(spine: Spine, *, lease: float, outcome: Outcome) -> list[Report]:
    """Every due row of the keyed lane, claimed, with the end of its call."""
    return [report(spine, claimed, outcome) for claimed in await claim(spine, limit=10, lease=lease)]


@pytest.mark.parametrize("table", ["outbox", "idempotency_keys", "intents", "dead_letters"])
@pytest.mark.parametrize("outcome", [Succeeded("pay_1"), NotExecuted("transport")], ids=["succeeded", "not_executed"])
async def test_only_the_held_result_waits(spine: Spine, table: str, outcome: Outcome) -> None:
    victim, *others = [spine.accepted(f"k{n}") for n in range(6)]
    await spine.all(ENTRY + " RETURNING id", i=victim)
    reports = await claimed(spine, lease=300, outcome=outcome)
    settler = Settler(spine.database)
    settling = asyncio.create_task(settler.run())
    with holding(spine.url, table, victim) as held:
        assert held == 1
        for report in reports:
            settler.held.hold(report.row.token)
            settler.put(report)
        await until(lambda: sum(settler.fates.values()) >= len(others))
        assert not settling.done()
        row = await spine.row(victim)
        assert row["status"] == "claimed", "what is held was not written, and not given up either"
        assert settler.held, "this process may still act upon it"
    await until(lambda: sum(settler.fates.values()) > len(others))
    assert settler.fates == {"settled": 6}
    assert not settler.held
    settling.cancel()


@pytest.mark.parametrize("table", ["outbox", "idempotency_keys"])
async def test_a_result_whose_row_stays_held_is_kept_as_a_proof_when_the_worker_ends(spine: Spine, table: str) -> None:
    victim, _ = spine.accepted("k1"), spine.accepted("k2")
    reports = await claimed(spine, lease=300, outcome=Succeeded("pay_1"))
    settler = Settler(spine.database)
    settling = asyncio.create_task(settler.run())
    with holding(spine.url, table, victim):
        for report in reports:
            settler.put(report)
        await asyncio.wait_for(settler.drain(), PATIENCE)
        assert await spine.all("SELECT source, outcome FROM idem.proofs WHERE intent_id = %(i)s", i=victim) == [
            {"source": "worker", "outcome": "succeeded"}
        ]
    settling.cancel()
    assert settler.fates == {"settled": 1, "late_proof": 1}


async def test_an_intent_that_is_locked_whole_costs_the_others_nothing(spine: Spine) -> None:
    """Not even its evidence can be written then: the key of that intent is checked by each of its rows."""
    held = {f"k{n}": spine.accepted(f"k{n}") for n in range(4)}
    reports = await claimed(spine, lease=300, outcome=Succeeded("pay_1"))
    settler = Settler(spine.database, batch=1)
    settling = asyncio.create_task(settler.run())
    with holding(spine.url, "intents", held["k0"]), holding(spine.url, "intents", held["k1"]):
        for report in reports:
            settler.put(report)
        await until(lambda: sum(settler.fates.values()) >= 2)
    await until(lambda: sum(settler.fates.values()) >= 4)
    settling.cancel()
    with suppress(asyncio.CancelledError):
        await settling


async def test_a_pass_by_hand_ends_though_a_row_is_held(spine: Spine) -> None:
    rows: dict[str, UUID] = {f"k{n}": spine.accepted(f"k{n}") for n in range(3)}
    with holding(spine.url, "idempotency_keys", rows["k0"]):
        done = await spine.work()
    assert (done.claimed, done.fates) == (3, {"settled": 2, "late_proof": 1})
