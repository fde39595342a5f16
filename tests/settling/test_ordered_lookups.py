"""A look that an operator orders uses up none of the schedule (`idem reconcile --now`, `--since`)."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from fix_spine import Spine

ORDERS: list[dict[str, Any]] = [{"hasten": True}, {"since": datetime.now(UTC) - timedelta(days=1)}]


async def lost(spine: Spine) -> UUID:
    return await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])


async def next_lookup(spine: Spine) -> float:
    return float(await spine.value("SELECT extract(epoch FROM available_at - now())::float8 FROM idem.outbox"))


@pytest.mark.parametrize("order", ORDERS, ids=["now", "since"])
async def test_ordered_lookups_leave_the_schedule_as_it_is(spine: Spine, order: dict[str, Any]) -> None:
    """Five before the first scheduled one: no entry, the same count, and the next look when the schedule has it."""
    intent = await lost(spine)
    before = await next_lookup(spine)
    await spine.reconcile(**order, times=5)
    await spine.expect(intent, status="unknown", lookups=0)
    assert (await spine.row(intent))["absences"] == 5, "each of them was made"
    assert 0 < await next_lookup(spine) <= before
    assert await spine.letters(intent) == []


async def test_the_schedule_goes_on_where_it_was(spine: Spine) -> None:
    """The ordered look is made again when it could not be asked, and the scheduled one counts as ever."""
    intent = await lost(spine)
    spine.bank.script({"method": "GET"}, ["503"])
    await spine.reconcile(hasten=True)
    row = await spine.row(intent)
    assert row is not None and (row["lookups"], row["failures"]) == (0, 1) and row["scheduled_at"] is not None
    await spine.reconcile(after=10)
    await spine.expect(intent, lookups=1, absences=1, scheduled_at=None)
    await spine.reconcile(hasten=True)
    await spine.expect(intent, lookups=1, absences=2, scheduled_at=None)


async def test_ordered_lookups_still_settle(spine: Spine) -> None:
    intent = await lost(spine)
    await spine.reconcile(after=250, hasten=True)
    await spine.reconcile(hasten=True)
    await spine.expect(intent, status="held")


async def test_an_awaiting_row_is_polled_as_before(spine: Spine) -> None:
    """Its polls have a schedule too: orders do not push it to the daily one."""
    intent = await spine.sent(operation="pay.keyless", faults=["pending"])
    await spine.expect(intent, status="awaiting")
    before = await next_lookup(spine)
    await spine.reconcile(hasten=True, times=5)
    await spine.expect(intent, status="awaiting", lookups=0)
    assert 0 < await next_lookup(spine) <= before


async def test_what_is_used_up_before_its_quiet_time_is_asked_when_that_ends(spine: Spine) -> None:
    """A short schedule: the last of its look-ups is made while the call may still act; the next one decides, not a day
    later."""
    known = spine.provider("keyless")
    spine.change("keyless", contract=dataclasses.replace(known.contract, schedule=(5.0, 5.0)))
    intent = await lost(spine)
    await spine.reconcile(after=10, times=2)
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    quiet = await spine.one("SELECT extract(epoch FROM quiet_after - now())::float8 AS left FROM idem.outbox")
    assert quiet["left"] < await next_lookup(spine) < quiet["left"] + 30
    await spine.reconcile(after=await next_lookup(spine) + 1)
    await spine.expect(intent, status="held")
    assert await spine.letters(intent) == [], "the verdict closes the entry"
