"""The progress of a demo: counts from the database and the clients, and whether it is over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg import AsyncConnection

from idem.cli.demo.clients import Clients
from idem.outbox.database import session

COUNT = """
SELECT (SELECT count(*) FROM idem.intents), (SELECT count(*) FROM idem.intents WHERE state = 'completed'),
       (SELECT count(*) FROM idem.outbox o WHERE status = 'unknown' AND NOT EXISTS (
            SELECT FROM idem.dead_letters l WHERE l.intent_id = o.intent_id AND l.resolved_at IS NULL
               AND l.reason IN ('reconcile_exhausted', 'not_settleable'))),
       (SELECT count(*) FROM idem.outbox WHERE status = 'awaiting'),
       (SELECT count(*) FROM idem.outbox WHERE status IN ('unfrozen', 'pending', 'claimed')),
       (SELECT count(*) FROM idem.outbox o WHERE status = 'held' AND redrive_at IS NULL),
       (SELECT count(*) FROM idem.outbox o WHERE status = 'held' AND redrive_at IS NOT NULL),
       (SELECT count(*) FROM idem.dead_letters WHERE resolved_at IS NULL)
"""
INTERVAL = 0.5
GIVE_UP = 12.0
"""Seconds to wait for clients when no row is open any more; after that their answers will not come."""


@dataclass
class Progress:
    """The progress of a running demo."""

    intents: int = 0
    completed: int = 0
    unknown: int = 0
    awaiting: int = 0
    queued: int = 0
    held: int = 0
    redriving: int = 0
    letters: int = 0
    away: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def open(self) -> int:
        """Rows that a daemon still works on."""
        return self.unknown + self.awaiting + self.queued + self.redriving


class Monitor:
    """Counts every half second; an unavailable database is not an error."""

    def __init__(self, url: str, clients: Clients, payments: int) -> None:
        self.progress = Progress()
        self._url = url
        self._clients = clients
        self._payments = payments
        self._connection: AsyncConnection | None = None

    async def until_over(self, limit: float, may_end: Callable[[], bool]) -> bool:
        """Wait up to `limit` seconds until nothing is open and the clients are done; returns whether they are."""
        loop = asyncio.get_running_loop()
        until, quiet_since = loop.time() + limit, None
        while loop.time() < until:
            await self.poll()
            if not self.progress.away and self.progress.open == 0 and self._clients.arrived and may_end():
                quiet_since = quiet_since or loop.time()
                if self._clients.done >= self._payments or loop.time() - quiet_since > GIVE_UP:
                    return True
            else:
                quiet_since = None
            await asyncio.sleep(INTERVAL)
        return False

    async def poll(self) -> None:
        """Count once."""
        progress = self.progress
        try:
            if self._connection is None:
                self._connection = await session.connect(self._url, name="idem demo")
            row = await (await self._connection.execute(COUNT)).fetchone()
            assert row is not None
            (progress.intents, progress.completed, progress.unknown, progress.awaiting, progress.queued,
             progress.held, progress.redriving, progress.letters) = row  # fmt: skip
            progress.away = False
        except (psycopg.Error, OSError):
            progress.away = True
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
