"""Listens for the notifications that wake idle workers (see `notify`): one session, and the events that it sets."""

import asyncio
from collections.abc import Collection

from idem.outbox.daemon.retry import wait
from idem.outbox.database.bounded import BoundedConnection
from idem.outbox.database.channel import ALL, CHANNEL, lanes
from idem.outbox.database.pool import Database
from idem.outbox.observe import daemon_events
from idem.outbox.values.backoff import backoff


class Listener:
    """Sets events when a nudge comes. Its session never has an open transaction, and it connects again by itself.

    A dead connection that looks alive is found by a question that has a bound, and costs nothing but latency: polling
    is the truth. Each end of it is a line in the log, and `idem_listening` counts who listens.
    """

    def __init__(self, database: Database, probe: float = 5.0) -> None:
        self._database = database
        self._probe = probe
        self._events: list[tuple[str, asyncio.Event]] = []
        self.listening = asyncio.Event()
        self._reported_away = False

    def subscribe(self, lane: str = ALL) -> asyncio.Event:
        """An event that is set at each notification for this lane, or that names none; the waiter clears it."""
        event = asyncio.Event()
        self._events.append((lane, event))
        return event

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until `stop` is set."""
        failures = 0
        while not stop.is_set():
            connection: BoundedConnection | None = None
            try:
                connection = await self._database.dedicated()
                # It waits for hints, which may be rare: only its questions are owed an answer.
                connection.silence = max(connection.silence, 2 * self._probe)
                await connection.execute(f"LISTEN {CHANNEL}")
                failures = 0
                self.listening.set()
                self._reported_away = False
                daemon_events.listening()
                self._wake()
                while not stop.is_set():
                    heard = False
                    async for notice in connection.notifies(timeout=self._probe, stop_after=1):
                        heard = True
                        self._wake(lanes(notice.payload))
                    if not heard:
                        # A silent connection may be a dead one: an answer proves that it is not.
                        with connection.bounded(self._database.timeouts.connect):
                            await connection.execute("SELECT 1")
            except Exception as error:  # hints must never end a worker: it polls meanwhile
                failures += 1
                self._away(error)
                await wait(stop, backoff(failures, base=0.5, cap=10.0))
            finally:
                self.listening.clear()
                if connection is not None:
                    daemon_events.listens_no_more()
                    await connection.close()

    def _away(self, error: Exception) -> None:
        if not self._reported_away:
            self._reported_away = True
            daemon_events.listener_away(error)

    def _wake(self, named: Collection[str] | None = None) -> None:
        for lane, event in self._events:
            if named is None or lane in named:
                event.set()
