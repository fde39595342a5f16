"""The poll of an idle worker for all its lanes: it finds what no hint has told, and holds up no lane."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fix_database import connected
from fix_spine import Spine
from fix_steps import working
from fix_waiting import until

from idem.outbox.domain.lane_scopes import LaneScope, lane_scopes
from idem.outbox.values import clock
from idem.outbox.worker.idle_poll import SLOW, IdlePoll
from idem.outbox.worker.queue_position import HEAD, OVERLAP, WHOLE, QueuePosition

TOMORROW = datetime.now(UTC) + timedelta(days=1)


def scopes(spine: Spine) -> list[LaneScope]:
    return [scope for scope, _ in lane_scopes(spine.catalogue).values()]


async def settled(spine: Spine) -> bool:
    return await spine.all("SELECT FROM idem.outbox") == []


async def test_it_says_which_lanes_have_rows_that_are_due(spine: Spine) -> None:
    spine.accepted("k1", operation="pay.keyed")
    async with connected(spine.url, size=1) as database:
        poll = IdlePoll(database, 30.0)
        for scope in scopes(spine):
            poll.add(scope, QueuePosition())
        found = [scope.provider for scope in scopes(spine) if await poll.finds(scope)]
        assert found == ["keyed"]
        assert not await poll.finds_unfrozen()
        await spine.execute("UPDATE idem.outbox SET available_at = statement_timestamp() + interval '1 hour'")
        later = IdlePoll(database, 30.0)
        for scope in scopes(spine):
            later.add(scope, QueuePosition())
        assert [scope for scope in scopes(spine) if await later.finds(scope)] == []


async def test_a_claim_has_seen_more_than_a_poll_that_was_under_way(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(spine.url, size=1) as database:
        poll, beside, moved = IdlePoll(database, 30.0), QueuePosition(), QueuePosition()
        first, second = scopes(spine)[:2]
        poll.add(first, beside)
        poll.add(second, moved)
        far = clock.boottime() + 1000.0

        def begin(now: float) -> tuple[Any, Any]:
            # A claim of this lane ends while the poll is on its way.
            asyncio.get_running_loop().call_soon(claimed)
            return HEAD

        def claimed() -> None:
            beside.claimed(HEAD, [], TOMORROW, full=False, now=far, took=0.0)

        monkeypatch.setattr(beside, "begin", begin)
        assert not await poll.finds(first)
        assert beside.claims == moved.claims == 1
        assert QueuePosition.begin(beside, far)[0] == TOMORROW - OVERLAP


async def test_a_poll_without_an_answer_stops_no_lane(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line may say nothing for as long as a statement may take; the other connections work."""

    async def silent(poll: IdlePoll, connection: Any) -> frozenset[str]:
        await asyncio.sleep(3600)
        return frozenset()

    monkeypatch.setattr(IdlePoll, "_asked", silent)
    async with working(spine, poll=0.2):
        await asyncio.sleep(0.5)
        await asyncio.to_thread(spine.accepted, "k1")
        await until(lambda: settled(spine), seconds=10)


async def test_a_slow_poll_leaves_each_lane_to_itself_and_its_pace(spine: Spine) -> None:
    """One lane with millions of dead entries makes the common statement slow; the others are looked at as before."""
    asked: list[object] = []

    class Slow(QueuePosition):
        def begin(self, now: float) -> tuple[Any, Any]:
            asked.append(self)
            time.sleep(SLOW)
            return super().begin(now)

    async with connected(spine.url, size=1) as database:
        poll, quick = IdlePoll(database, 0.01), QueuePosition()
        first, second = scopes(spine)[:2]
        poll.add(first, Slow())
        poll.add(second, quick)
        assert not await poll.finds(first)
        assert quick.begin(clock.boottime() + WHOLE) == HEAD
        await asyncio.sleep(0.02)
        assert await poll.finds(first) and await poll.finds(second)
        assert len(asked) == 1
        only = IdlePoll(database, 0.01)
        only.add(first, Slow())
        assert not await only.finds(first)
        await asyncio.sleep(0.02)
        assert await only.finds(first) and len(asked) == 2


async def test_a_poll_that_failed_is_asked_again(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError("away")]
    right = IdlePoll._asked

    async def asked(poll: IdlePoll, connection: Any) -> frozenset[str]:
        if failures:
            raise failures.pop()
        return await right(poll, connection)

    monkeypatch.setattr(IdlePoll, "_asked", asked)
    async with connected(spine.url, size=1) as database:
        poll = IdlePoll(database, 30.0)
        lane = scopes(spine)[0]
        poll.add(lane, QueuePosition())
        with pytest.raises(OSError, match="away"):
            await poll.finds(lane)
        assert not await poll.finds(lane)
