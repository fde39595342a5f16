"""A lane that found the fleet full: it looks again whatever hints come, and for nothing that is not of its own."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fix_spine import Spine
from fix_sql import forced, query
from fix_waiting import running, until
from psycopg import AsyncConnection
from shares.gate import Gate
from shares.queues import plant

from idem.outbox.calls.breaker import TRANSPORT_LIMIT
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.notify import CHANNEL
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.worker import Worker
from idem.outcomes import NotExecuted

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def hints(url: str, every: float = 0.01) -> AsyncIterator[None]:
    """What several processes send that accept all the time."""

    async def send() -> None:
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            while True:
                await connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
                await asyncio.sleep(every)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending


async def test_hints_without_a_gap_hide_no_room(gate: Gate, db_url: str) -> None:
    """No call of this worker is under way: only the next look tells it that there is room again."""
    async with gate.working(shared=False, poll=0.2, limits={"concurrency": 2}) as accept, hints(db_url):
        query(db_url, "INSERT INTO idem.lanes (provider, account, paused) VALUES ('mail', '', true)")
        accept("bulk", 3)
        await asyncio.sleep(0.5)
        query(db_url, "UPDATE idem.lanes SET paused = false")
        async with asyncio.timeout(5):
            await gate.reaches(bulk=2, others=0)


async def test_a_call_of_a_limited_fleet_that_ends_is_at_once_for_who_waits_without_one(gate: Gate) -> None:
    async with gate.working(shared=True, limits={"concurrency": 3}) as accept:
        accept("bulk", 8)
        await gate.reaches(bulk=2, others=0)
        accept("anna")
        await gate.reaches(bulk=2, others=1)
        accept("zoe")
        await asyncio.sleep(0.5)
        await gate.end_one()
        async with asyncio.timeout(5):
            await gate.reaches(bulk=1, others=2)


async def test_of_two_calls_with_one_kept_for_look_ups_the_other_goes_on(gate: Gate, db_url: str) -> None:
    async with gate.working(shared=True, limits={"concurrency": 2}) as accept:
        query(db_url, "INSERT INTO idem.lanes (provider, account, paused) VALUES ('mail', '', true)")
        accept("bulk", 7)
        forced(
            db_url,
            "UPDATE idem.outbox SET status = 'unknown', first_sent_at = statement_timestamp()"
            " WHERE id = (SELECT id FROM idem.outbox LIMIT 1)",
        )
        query(db_url, "UPDATE idem.lanes SET paused = false")
        query(db_url, "SELECT pg_notify(%s, '')", (CHANNEL,))
        async with asyncio.timeout(10):
            for _ in range(4):
                await gate.reaches(bulk=1, others=0)
                await gate.end_one()
            await gate.reaches(bulk=1, others=0)


async def test_a_stop_waits_for_no_breaker(spine: Spine) -> None:
    worker = Worker(spine.database, spine.catalogue, WorkerSettings(lease=30, margin=1, slots=8, poll=60))
    breaker = worker.lanes[0].lane.breaker
    breaker._pauses = 10
    for row in range(TRANSPORT_LIMIT):
        breaker.record(row, NotExecuted("transport"), clock.boottime())
    async with asyncio.timeout(10), running(worker):
        await asyncio.sleep(0.3)


async def test_a_paused_lane_looks_once_a_poll_whatever_another_lane_settles(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = Counter[str]()
    real = claims.claim

    async def counted(connection: Any, lane: Any, **how: Any) -> Any:
        claimed[lane.provider] += 1
        return await real(connection, lane, **how)

    monkeypatch.setattr(claims, "claim", counted)
    query(spine.url, "INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyless', 'keyless', true)")
    plant(spine.url, 300, tenant="t", origin=spine.bank.url)
    worker = Worker(spine.database, spine.catalogue, WorkerSettings(lease=30, margin=1, slots=8, poll=60))
    async with running(worker):
        await until(lambda: worker.settler.fates.total() == 300, seconds=50)
    assert claimed["keyed"] > 30
    assert claimed["keyless"] <= 5
