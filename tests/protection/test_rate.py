"""Calls a second of the whole fleet: counted at the bank, over processes that divide the rate by heartbeats."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fix_spine import KEYED, Spine
from fix_waiting import running, stopping, until

from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.daemon import fleet
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.limits import Limits
from idem.outbox.domain.rate_limit import BURST, Serving
from idem.outbox.worker.worker import Worker
from idem.reconciler.daemon import Reconciler

RATE = 20.0


def limited(spine: Spine, **limits: Any) -> Catalogue:
    known = replace(spine.provider("keyed"), contract=replace(KEYED, limits=Limits(**limits)))
    operations = {"pay.keyed": spine.catalogue.operations["pay.keyed"]}
    return Catalogue(spine.catalogue.environment, {"keyed": known}, operations)


def worker(spine: Spine, catalogue: Catalogue) -> Worker:
    return Worker(spine.database, catalogue, WorkerSettings(lease=30, margin=1, poll=0.2))


async def counted(spine: Spine, *daemons: Worker) -> None:
    """What a heartbeat of each does."""
    for each in daemons:
        await spine.run(each.life.beat)
        await spine.run(each.life.census.count)


def most(times: Sequence[float], seconds: float) -> int:
    """The largest number of calls in any interval of so many seconds."""
    return max(sum(1 for other in times if at <= other < at + seconds) for at in times)


async def test_a_fleet_keeps_its_rate_and_uses_it(spine: Spine) -> None:
    catalogue = limited(spine, rate=RATE)
    for n in range(100):
        spine.accepted(f"k{n}")
    daemons = [worker(spine, catalogue) for _ in range(3)]
    reconciler = Reconciler(spine.database, catalogue, ReconcilerSettings(lease=30, interval=0.2), margin=1)
    await counted(spine, *daemons, *daemons)
    async with running(*daemons, reconciler):
        await until(lambda: spine.effects() >= 80)
    times = [each.at for each in spine.bank.log.requests]
    assert len(times) >= 80
    # Each process may begin with one and save up a tenth of a second; a slow machine moves them together.
    assert most(times, 2.0) <= 2 * RATE + 3 * (1 + RATE * BURST) + 0.25 * RATE
    sys.stderr.write(f"\n{len(times) / (times[-1] - times[0]):.1f} calls a second where {RATE:g} are allowed\n")


async def test_the_rate_is_divided_by_those_who_live(spine: Spine) -> None:
    catalogue = limited(spine, rate=RATE, lookup_share=0.25)
    first, second = worker(spine, catalogue), worker(spine, catalogue)
    third = Reconciler(spine.database, catalogue, ReconcilerSettings(lease=30))
    await counted(spine, first, second, first)
    assert [each.lanes[0].lane.pacer.rate for each in (first, second)] == [RATE / 2, RATE / 2]
    async with spine.database.connection() as connection:
        await third.context.life.beat(connection)
        await third.context.life.census.count(connection)
        assert await fleet.serving(connection) == Serving(2, 1)
    assert third.lanes[0].lane.pacer.rate == pytest.approx(RATE / 4)
    await counted(spine, first)
    assert first.lanes[0].lane.pacer.rate == pytest.approx(RATE * 3 / 8)
    await spine.execute("UPDATE idem.daemons SET seen_at = now() - interval '31 s' WHERE id = %(i)s", i=second.life.id)
    await counted(spine, first)
    assert first.lanes[0].lane.pacer.rate == pytest.approx(RATE * 3 / 4)
    await second.life.end(spine.database)
    for each in (first, second, third):
        await each.close()


async def test_nobody_counts_where_no_rate_wants_it(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: Any) -> Serving:
        raise AssertionError("counted")

    monkeypatch.setattr(fleet, "serving", never)
    for limits in ({}, {"rate": RATE, "processes": 4}):
        one = worker(spine, limited(spine, **limits))
        await counted(spine, one)
        await one.close()


async def test_no_claimed_row_waits_for_its_token(spine: Spine) -> None:
    """A claim takes what may be sent now; what waits, waits in the queue, where another process can take it."""
    catalogue = limited(spine, rate=0.2, processes=1)
    for n in range(5):
        spine.accepted(f"k{n}")
    one = worker(spine, catalogue)
    began = time.monotonic()
    assert (await one.run_once()).claimed == 1
    assert (await one.run_once()).claimed == 0
    assert time.monotonic() - began < 5
    assert {row["status"] for row in await spine.all("SELECT status FROM idem.outbox")} == {"pending"}
    await one.close()


async def test_a_pass_of_reconcile_waits_for_its_tokens_and_leaves_nothing(spine: Spine) -> None:
    for n in range(6):
        spine.accepted(f"k{n}")
    await spine.work(faults=["drop_before_acting"] * 6)
    await spine.advance(10)
    catalogue = limited(spine, rate=8, lookup_share=0.5, processes=1)
    async with stopping(Reconciler(spine.database, catalogue, ReconcilerSettings(lease=30), margin=1)) as one:
        done = await one.run_once()
    assert done.settled == {"replay:succeeded": 6}
    times = [each.at for each in spine.bank.log.requests][-6:]
    assert times[-1] - times[0] >= 4 / 4.0 * 0.9
