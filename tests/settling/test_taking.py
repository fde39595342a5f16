"""A lane takes what is due as its calls end: a backlog is asked about at their speed, not at that of the passes."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fix_spine import KEYED, Spine

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.limits import Limits
from idem.reconciler.daemon import Reconciler
from idem.reconciler.pump import Pump

UNKNOWN = 8


@pytest.fixture
async def backlog(spine: Spine) -> Spine:
    for n in range(UNKNOWN):
        spine.accepted(f"k{n}")
    await spine.work(faults=["drop_before_acting"] * UNKNOWN)
    await spine.advance(10)
    assert len(await spine.all("SELECT id FROM idem.outbox WHERE status = 'unknown'")) == UNKNOWN
    return spine


def reconciler(spine: Spine, *, slots: int, limits: Limits = Limits()) -> Reconciler:  # noqa: B008
    other = replace(spine.provider("keyed"), contract=replace(KEYED, limits=limits))
    operations = {"pay.keyed": spine.catalogue.operations["pay.keyed"]}
    catalogue = Catalogue(spine.catalogue.environment, {"keyed": other}, operations)
    return Reconciler(spine.database, catalogue, ReconcilerSettings(lease=90, interval=60), slots=slots, margin=1)


@pytest.mark.timeout(40)
@pytest.mark.parametrize(
    ("slots", "limits"),
    [
        (1, Limits()),
        (2, Limits()),
        (4, Limits(concurrency=2, lookup_share=0.5)),
        (4, Limits(concurrency=1, lookup_share=0.5)),
        (4, Limits(rate=20, lookup_share=0.9)),
    ],
    ids=["one_slot", "two_slots", "fleet_of_two", "fleet_of_one", "rate"],
)
async def test_one_pass_asks_about_all_that_is_due(backlog: Spine, slots: int, limits: Limits) -> None:
    """The next pass would be a minute later."""
    one = reconciler(backlog, slots=slots, limits=limits)
    await one.lanes[0].start_all(asyncio.Event())
    await one.lanes[0].finish()
    await one.close()
    assert sum(one.context.settled.values()) == UNKNOWN
    assert backlog.effects() == UNKNOWN


@pytest.mark.timeout(40)
async def test_a_stop_takes_nothing_more(backlog: Spine) -> None:
    one, stop = reconciler(backlog, slots=2), asyncio.Event()
    backlog.bank.script(None, ["stall_before_acting"] * 2)
    taking = asyncio.create_task(one.lanes[0].start_all(stop))
    while len(backlog.bank.log.requests) < UNKNOWN + 2:
        await asyncio.sleep(0.01)
    stop.set()
    await taking
    await one.lanes[0].finish()
    await one.close()
    assert sum(one.context.asked.values()) == 2


async def test_rows_and_events_leave_each_other_a_slot(spine: Spine) -> None:
    known = spine.catalogue.providers["keyed"]
    for slots, webhook, most in ((4, None, 4), (4, object(), 3), (2, object(), 1), (1, object(), 1)):
        lane = Lane(known, known.accounts["keyed"], slots=slots, margin=1)
        lane.provider = cast(Any, SimpleNamespace(webhook=webhook))
        pump, free = Pump(lane), []
        for _ in range(slots + 1):
            free.append(pump.room())
            pump.begin(asyncio.sleep(0))
        assert free == [max(0, most - own) for own in range(slots + 1)]
        await lane.close()
