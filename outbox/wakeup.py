"""Waking idle workers: a hint after the commit, never the truth. Polling finds whatever a lost hint would have said.

The accepting transaction never notifies: a NOTIFY inside it takes one lock for the whole database cluster at commit
and breaks two-phase commit. The library sends one, without payload, on a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import psycopg
from sqlalchemy import Connection, event

from idem.outbox.backoff import backoff
from idem.outbox.database import AWAY, Database

CHANNEL = "idem_outbox"


class Nudge:
    """Sends at most one NOTIFY per `interval` seconds a process, from a thread of its own.

    Errors are swallowed: the connection is made anew at the next nudge, and nothing depends on it.
    """

    def __init__(self, url: str, *, interval: float = 0.02, settle_time: float = 0.003) -> None:
        self._url = url
        self._interval = interval
        self._settle_time = settle_time
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def after_commit(self, connection: Connection) -> None:
        """Nudge when this connection's transaction commits. A rollback leaves the hint for its next commit."""
        event.listen(connection, "commit", self._committing, once=True)

    def _committing(self, _connection: Connection) -> None:
        self.wake()

    def wake(self) -> None:
        """Wake the workers soon."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._closed = False
                self._thread = threading.Thread(target=self._run, name="idem-nudge", daemon=True)
                self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Stop the thread; a hint that was not sent yet is lost, which costs a polling interval."""
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        connection: psycopg.Connection[tuple[object, ...]] | None = None
        while True:
            self._wanted.wait()
            if self._closed:
                break
            self._wanted.clear()
            # SQLAlchemy announces a commit just before it happens: give it the time to become visible.
            time.sleep(self._settle_time)
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
                connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
            except psycopg.Error:
                connection = None
            time.sleep(self._interval)
        if connection is not None:
            connection.close()


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
                await connection.execute("LISTEN idem_outbox")
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
