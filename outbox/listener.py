"""Hearing what wakes idle workers (see `wakeup`): one session that listens, and the events that it sets."""

from __future__ import annotations

import asyncio
import contextlib

from idem.outbox.backoff import backoff
from idem.outbox.channel import CHANNEL
from idem.outbox.database import AWAY, Database


class Listener:
    """Sets events when a nudge comes. Its session never has an open transaction, and it connects again by itself.

    A dead connection that looks alive costs nothing but latency: polling is the truth.
    """

    def __init__(self, database: Database, probe: float = 5.0) -> None:
        self._database = database
        self._probe = probe
        self._events: list[asyncio.Event] = []
        self.listening = asyncio.Event()

    def subscribe(self) -> asyncio.Event:
        """An event that is set at each nudge; whoever waits for it clears it."""
        event = asyncio.Event()
        self._events.append(event)
        return event

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until `stop` is set."""
        failures = 0
        while not stop.is_set():
            try:
                connection = await self._database.dedicated()
            except AWAY:
                failures += 1
                await _pause(stop, backoff(failures, base=0.5, cap=10.0))
                continue
            try:
                await connection.execute(f"LISTEN {CHANNEL}")
                failures = 0
                self.listening.set()
                self._wake()
                while not stop.is_set():
                    heard = False
                    async for _ in connection.notifies(timeout=self._probe, stop_after=1):
                        heard = True
                    if heard:
                        self._wake()
                    else:
                        # A silent connection may be a dead one: an answer proves that it is not.
                        await connection.execute("SELECT 1")
            except AWAY:
                failures += 1
                await _pause(stop, backoff(failures, base=0.5, cap=10.0))
            finally:
                self.listening.clear()
                await connection.close()

    def _wake(self) -> None:
        for subscriber in self._events:
            subscriber.set()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
