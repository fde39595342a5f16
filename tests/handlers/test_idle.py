"""An idle installation asks its database little, and what settles is told without waiting for a poll."""

import asyncio
import time
from collections import Counter
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_spine import Spine
from fix_waiting import running
from sqlalchemy.orm import Session

from idem import Settled
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.worker.worker import Worker
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper

ONE_SECOND = 1.0
"""The shortest default interval of anything that polls."""


async def test_what_a_worker_settles_wakes_its_handlers(spine: Spine) -> None:
    heard: list[UUID] = []
    told, loop = asyncio.Event(), asyncio.get_running_loop()

    def hear(db: Session, settled: Settled[Any]) -> None:
        heard.append(settled.intent)
        loop.call_soon_threadsafe(told.set)

    known = handler("pay.keyed", hear)
    # It would find nothing by itself for as long as this test runs.
    runner = HandlerRunner(spine.url, {known.name: known}, poll=3600)
    accepted = []
    async with running(Worker(spine.database, spine.catalogue, handlers=runner)):
        # The first may be found by the look at the start, and the second by the one after its turn.
        for number in range(4):
            told.clear()
            accepted.append(spine.accepted(f"k{number}"))
            async with asyncio.timeout(60):
                await told.wait()
            while await spine.all("SELECT FROM idem.handler_work"):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
    assert heard == accepted


async def test_an_idle_statement_runs_once_a_second_and_lane(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    execute = psycopg.AsyncCursor.execute

    async def counting(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        # An empty one is the pool's proof of a connection before it is lent: it begins no transaction.
        if query:
            counted[str(query)] += 1
        return await execute(self, query, *arguments, **options)

    def hear(db: Session, settled: Settled[Any]) -> None: ...

    known = handler("pay.keyed", hear, begin="first")
    runner = HandlerRunner(spine.url, {known.name: known})
    daemons = (
        Worker(spine.database, spine.catalogue, handlers=runner),
        Sweeper(spine.database, spine.catalogue),
        Reconciler(spine.database, spine.catalogue),
    )
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", counting)
    async with running(*daemons):
        # What each does once at its start is no poll.
        await asyncio.sleep(1)
        counted.clear()
        began = time.monotonic()
        await asyncio.sleep(5)
        seconds, seen = time.monotonic() - began, dict(counted)
    lanes = len(daemons[0].lanes)
    assert seen
    # A pass that was late is followed by the next one promptly: one more for each end of the time.
    most = lanes * (seconds / ONE_SECOND + 2)
    assert {statement: n for statement, n in seen.items() if n > most} == {}
    polls = sum(n for statement, n in seen.items() if "idem.handler_work" in statement and "unnest" in statement)
    assert polls <= seconds / ONE_SECOND + 2
