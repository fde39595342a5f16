"""The one retry loop: waits after an outage, a refused statement or a fault of idem's own, and reports each once."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

from idem.outbox.database.pool import AWAY, REFUSED
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.values.backoff import backoff

BROKEN_WAIT: Final = 5.0
"""Seconds until work that failed for a reason of its own is tried again: no hot loop, no flood of lines."""

Tried: TypeAlias = Literal["done", "retry", "broken"]
"""retry: the database was away or refused a statement. broken: the work raised another exception."""


class RetryLoop:
    """Retries one kind of work of a daemon.

    `name` stands in the log lines of an outage, `daemon` and `doing` in the line of an unexpected exception.
    """

    def __init__(self, name: str, *, daemon: str = "worker", doing: str = "") -> None:
        self._outage = daemon_events.OutageLog(name)
        self._daemon = daemon
        self._doing = doing
        self._failures = 0

    async def attempt(
        self,
        work: Callable[[], Awaitable[object]],
        stop: asyncio.Event,
        *,
        failed: Callable[[], Awaitable[None]] | None = None,
    ) -> Tried:
        """Try once. After a failure call `failed` and wait, or until `stop`. Raises no Exception.

        The work calls `over` as soon as the database has answered it.
        """
        error: Exception
        try:
            await work()
            return "done"
        except Exception as raised:  # work that fails must never end its daemon: the log shows why, and it is retried
            error = raised
        tried: Tried = "retry" if isinstance(error, (*AWAY, *REFUSED)) else "broken"
        if tried == "broken":
            telemetry.broken(self._daemon, error, self._doing)
        if failed is not None:
            await failed()
        if tried == "broken":
            await wait(stop, BROKEN_WAIT)
        else:
            await self.wait_after(error, stop)
        return tried

    async def wait_after(self, error: BaseException, stop: asyncio.Event) -> None:
        """Report one of `AWAY` or `REFUSED` and wait: 0.2 s doubling to 5 s, or until `stop`."""
        if isinstance(error, AWAY):
            self._outage.down(error)
        else:
            # The server works: another transaction or a time limit was in the way.
            self._outage.refused(error)
        self._failures += 1
        await wait(stop, backoff(self._failures, base=0.2, cap=5.0))

    def over(self) -> None:
        """A statement went through."""
        self._failures = 0
        self._outage.up()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most `seconds`; whether it is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def wait_for_any(*events: asyncio.Event, seconds: float) -> bool:
    """Wait for the first of these events at most `seconds`; whether one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for waiting in waits:
            waiting.cancel()
