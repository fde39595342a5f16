"""Passes of a daemon at fixed intervals, by APScheduler: they never overlap, and one that is late follows promptly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from idem.outbox import telemetry
from idem.outbox.daemon import BROKEN_WAIT, Life, Trouble, wait
from idem.outbox.database import AWAY

# It writes a line whenever a pass takes longer than its interval, which is nothing that a person must see.
logging.getLogger("apscheduler").setLevel(logging.ERROR)

PASS_AGAIN = 0.05
"""Seconds after a pass that overran its interval until the next one starts (IB-155)."""


class Passes:
    """Jobs of one daemon, each at its own interval (seconds), in UTC; each is its own series."""

    def __init__(self, daemon: str, interval: float, stop: asyncio.Event) -> None:
        self._daemon = daemon
        self._interval = interval
        self._stop = stop
        self._running: set[asyncio.Task[object]] = set()
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def add(self, name: str, work: Callable[[], Awaitable[object]], interval: float | None = None) -> None:
        """A job. While the database is away it backs off, says so once, and goes on by itself afterwards."""
        trouble = Trouble(f"{self._daemon} {name}")
        every = interval or self._interval

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                await self._once(name, work, trouble, every)
            finally:
                self._running.discard(task)

        self._scheduler.add_job(run, "interval", seconds=every, id=name)

    async def run(self, life: Life) -> None:
        """Run until the stop is set, then wait for the passes that run."""
        self._life = life
        self._scheduler.start()
        await self._stop.wait()
        self._scheduler.pause()
        if self._running:
            await asyncio.wait(list(self._running))
        self._scheduler.shutdown(wait=False)

    async def _once(self, name: str, work: Callable[[], Awaitable[object]], trouble: Trouble, every: float) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            began = loop.time()
            try:
                await work()
            except AWAY as error:
                await trouble.away(error, self._stop)
                continue
            except Exception as error:  # a pass must never end the daemon: a person sees the line, and it tries again
                telemetry.broken(self._daemon, error, name)
                await wait(self._stop, BROKEN_WAIT)
                return
            trouble.over()
            telemetry.passed(self._daemon)
            self._life.passed = True
            if loop.time() - began < every:
                return
            await asyncio.sleep(PASS_AGAIN)
