"""Passes of a daemon at fixed intervals, by APScheduler: they never overlap, and one that is late follows promptly.

Intervals are kept on a clock that never steps: a wall clock that is set back would stop the passes for as long as the
step, and one that is set forward by years would make the scheduler list every pass that it thinks it has missed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from idem.outbox.daemon.daemon import Life
from idem.outbox.daemon.pass_times import PassTime
from idem.outbox.daemon.retry import RetryLoop

# It writes a line whenever a pass takes longer than its interval, which is nothing that a person must see.
logging.getLogger("apscheduler").setLevel(logging.ERROR)

Over: TypeAlias = Callable[[], bool]
"""Whether a pass that goes through many rows is to end before its next one: the daemon stops."""


def never() -> bool:
    """For a pass that goes on until nothing is left."""
    return False


PASS_AGAIN = 0.05
"""Seconds after a pass that overran its interval until the next one starts (IB-155)."""


class _Steady(tzinfo):
    """What APScheduler takes for the time: seconds of `time.monotonic` since an arbitrary start.

    It asks only `datetime.now(timezone)`, and that asks the time zone what the system's time is there.
    """

    _START = datetime(2000, 1, 1, tzinfo=UTC)

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "steady"

    def fromutc(self, _: datetime) -> datetime:
        return (self._START + timedelta(seconds=time.monotonic())).replace(tzinfo=self)


class _Every(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """After each interval; what was missed is made up for by one pass."""

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        following = (previous_fire_time or now) + self._interval
        return following if following > now else now + self._interval


class Passes:
    """Jobs of one daemon, each at its own interval (seconds); each is its own series."""

    def __init__(self, life: Life, interval: float, stop: asyncio.Event) -> None:
        self._life = life
        self._daemon = life.kind
        self._interval = interval
        self._stop = stop
        self._running: set[asyncio.Task[object]] = set()
        self._scheduler = AsyncIOScheduler(
            timezone=_Steady(), job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def add(
        self, name: str, work: Callable[[], Awaitable[object]], interval: float | None = None, *,
        provider: str = "", account: str = "",
    ) -> None:  # fmt: skip
        """A job, of one lane if `provider` and `account` are given.

        While the database is away it backs off, says so once, and goes on by itself afterwards.
        """
        every = interval or self._interval
        kind = self._life.passes.expect(name, every, provider, account)
        name = f"{name} {provider}/{account}" if provider else name
        retry = RetryLoop(f"{self._daemon} {name}", daemon=self._daemon, doing=name)

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                await self._once(work, retry, kind)
            finally:
                self._running.discard(task)

        self._scheduler.add_job(run, _Every(every), id=name)

    async def run(self) -> None:
        """Run until the stop is set, then wait for the passes that run."""
        self._scheduler.start()
        await self._stop.wait()
        self._scheduler.pause()
        if self._running:
            await asyncio.wait(list(self._running))
        self._scheduler.shutdown(wait=False)
        self._life.passes.end()

    async def _once(self, work: Callable[[], Awaitable[object]], retry: RetryLoop, kind: PassTime) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            began = loop.time()
            match await retry.attempt(work, self._stop):
                case "retry":
                    continue
                case "broken":
                    return
            retry.over()
            kind.made()
            if loop.time() - began < kind.every:
                return
            await asyncio.sleep(PASS_AGAIN)
