"""Gives every daemon a fresh identity per start, a heartbeat, a stop on SIGTERM, and waits after errors."""

import asyncio
import contextlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from idem.outbox.daemon.database_clock import DatabaseClock, Leap
from idem.outbox.daemon.fleet import Census
from idem.outbox.daemon.pass_times import PassTimes
from idem.outbox.daemon.retry import wait
from idem.outbox.database.memory import Beat
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.values import clock

HEARTBEAT = 5.0
"""Seconds between heartbeats. A holder seen alive without a token that was swept is known to be done with it."""

LOST = 6
"""Heartbeats in a row that have failed, after which a daemon counts as silent to everybody else (`ages.SILENT`)."""

LIFE = "SUPERVISED_LIFE"
"""The environment variable in which a supervisor gives a process a word of its own, which its daemons' ids end in."""

# Taken out: what this process starts is another life.
_life = os.environ.pop(LIFE, None)

BEAT = """
INSERT INTO idem.daemons AS d (id, kind, host, pid, tokens, last_pass)
VALUES (%(id)s, %(kind)s, %(host)s, %(pid)s, %(tokens)s,
        jsonb_build_object('breakers', %(breakers)s::text[], 'overdue', %(late)s::jsonb,
                           'clock', %(clock)s::jsonb))
    ON CONFLICT (id) DO UPDATE SET heartbeats = d.heartbeats + 1, seen_at = statement_timestamp(),
       tokens = excluded.tokens,
       last_pass = excluded.last_pass,
       last_pass_at = CASE WHEN %(passed)s THEN statement_timestamp() - make_interval(secs => %(overdue)s)
                        ELSE d.last_pass_at END
RETURNING d.id AS daemon, d.heartbeats AS number, d.seen_at AS at,
          (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS moved,
          (SELECT greatest(i.recovered_at, i.doubted_at) FROM idem.installation i) AS recovery_statement,
          to_regclass('idem.outbox')::oid::bigint AS table
"""
END = """
UPDATE idem.daemons SET ended_at = statement_timestamp(), ended_how = 'clean', tokens = '{}'
 WHERE id = %(id)s AND ended_at IS NULL
"""


class Holds(Counter[UUID | None]):
    """How many rows of each claim token this process may still act upon, or has yet to report. A row without a token
    (None) is not counted."""

    def hold(self, token: UUID | None, rows: int = 1) -> None:
        """So many rows of this token were claimed, or are being claimed."""
        if token is not None and rows:
            self[token] += rows

    def let_go(self, token: UUID | None, rows: int = 1) -> None:
        """This process will not act upon so many rows of this token any more."""
        self[token] -= rows
        if self[token] <= 0:
            del self[token]

    def tokens(self) -> list[UUID]:
        """The tokens, for the heartbeat."""
        return [token for token in self if token is not None]


class Life:
    """The row of one daemon in `idem.daemons`.

    `tokens` are the claims that this process may still act upon. They are read before the statement, so a token
    that is missing was let go before the heartbeat.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id = f"{kind}-{uuid4()}" + (f"-{_life}" if _life else "")
        self.tokens: Callable[[], Collection[UUID]] = tuple
        self.breakers: Callable[[], Collection[str]] = tuple
        """The lanes whose breaker is open in this process, as provider/account."""
        self.census = Census()
        self.passes = PassTimes(kind)
        self._clock = DatabaseClock()
        self.beats = 0
        """Heartbeats that the database is known to have committed. Nothing is claimed from one that has fewer."""
        self.table = 0
        """The server's number of the outbox then. Nothing is claimed from another table."""
        self._misses = 0
        self._reported = False

    @property
    def leap(self) -> Leap | None:
        """The last jump forward of the database's clock that this daemon has seen."""
        return self._clock.leap

    async def beat(self, connection: AsyncConnection[Any]) -> Beat:
        """One heartbeat. Once it has committed, all of the log that it names is on disk."""
        cursor = connection.cursor(row_factory=class_row(Beat))
        sent = clock.boottime()
        await cursor.execute(
            BEAT,
            {
                "id": self.id,
                "kind": self.kind,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "tokens": list(self.tokens()),
                "breakers": list(self.breakers()),
                "late": Jsonb(self.passes.record()),
                "clock": Jsonb(self._clock.record(sent)),
                "passed": self.passes.any_made,
                "overdue": self.passes.overdue,
            },
        )
        beat = await cursor.fetchone()
        assert beat is not None
        jumped = self._clock.seen(beat.at, sent, clock.boottime())
        if jumped is not None:
            daemon_events.database_clock_jumped(self.kind, jumped)
        return beat

    async def run(self, database: Database, stop: asyncio.Event) -> None:
        """Beat every `HEARTBEAT` seconds until `stop` is set.

        A process whose beats fail looks dead to all others, so it says so itself once `LOST` of them in a row have. An
        outage is reported by the loops that work with the database.
        """
        while not stop.is_set():
            try:
                async with database.connection() as connection:
                    beat = await self.beat(connection)
                    await database.beaten(connection, beat)
                    # Only now: a database that went back has its doubts listed first.
                    self.beats, self.table = beat.number, beat.table
                    self._beaten()
                    await self.census.count(connection)
            except (*AWAY, *REFUSED) as error:
                self._missed(error)
            except Exception as error:  # without its heartbeat this process would look dead
                telemetry.broken(self.kind, error, "heartbeat")
                self._missed(error)
            await wait(stop, HEARTBEAT)

    def _beaten(self) -> None:
        if self._reported:
            daemon_events.heartbeat_back(self.kind, self.id)
        self._misses, self._reported = 0, False
        daemon_events.heartbeats_missed(self.kind, 0)

    def _missed(self, error: BaseException) -> None:
        self._misses += 1
        daemon_events.heartbeats_missed(self.kind, self._misses)
        if self._misses >= LOST and not self._reported and not isinstance(error, AWAY):
            self._reported = True
            daemon_events.heartbeat_lost(self.kind, self.id, error)

    async def end(self, database: Database) -> None:
        """Record that this daemon ended cleanly: nothing of it can act any more."""
        with contextlib.suppress(*AWAY, *REFUSED):
            async with database.connection() as connection:
                await end_daemon(connection, self.id)


async def end_daemon(connection: AsyncConnection[Any], daemon: str) -> None:
    """Record that a daemon ended cleanly. Of one that died its supervisor does: `idem.cli.group.dead_daemons`."""
    await connection.execute(END, {"id": daemon})


@contextlib.contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set. A second one changes nothing: running calls are finished (IB-172).

    Where SIGHUP is ignored (nohup), the end of the terminal is not ours, and stays ignored.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if not stop.is_set():
            daemon_events.stop_requested(number.name)
        stop.set()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
