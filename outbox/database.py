"""Connections of the daemons: a small pool whose sessions carry idem's own settings, whatever the role's are.

READ COMMITTED, so that guarded updates do not raise 40001; durable commits; statement, lock and idle timeouts;
generic plans that go by an index and in its order, because a queue's statistics are always wrong
(docs/decisions/0005): what was empty or little when a plan was made is read whole by it for as long as it lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

# The pool writes a line for each failed attempt to connect; the daemons write one for each outage.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR + 1)

AWAY: tuple[type[Exception], ...] = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    ReadOnlySqlTransaction,
    PoolTimeout,
    OSError,
)
"""What an unreachable or dying database looks like to the code that uses it.

One that takes no writes is as good as away: a full disk, or the standby that the name pointed to before a fail-over.
"""

Found = TypeVar("Found")

Hook: TypeAlias = Callable[[AsyncConnection[Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `connect` also bounds how long a caller waits for a free connection."""

    statement: float = 30.0
    lock: float = 5.0
    idle_in_transaction: float = 30.0
    connect: float = 5.0

    def silence(self, statements: int = 1) -> float:
        """Seconds after which so many statements on a connection of the pool have ended, unless the line is silent."""
        return self.connect + statements * self.statement + 1.0


SESSION = """
SELECT set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', %(statement)s, false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
       set_config('jit', 'off', false),
       set_config('timezone', 'UTC', false),
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
"""


async def configure(connection: AsyncConnection[Any], timeouts: Timeouts) -> None:
    """Give a session idem's settings, in one statement."""
    milliseconds = {
        "statement": timeouts.statement,
        "lock": timeouts.lock,
        "idle": timeouts.idle_in_transaction,
    }
    await connection.execute(SESSION, {name: f"{int(value * 1000)}ms" for name, value in milliseconds.items()})


LINE: Final[Mapping[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Milliseconds for which what was sent may stay unacknowledged by the other end's kernel.
    "tcp_user_timeout": 30_000,
}
"""A line whose other end is gone without a word is given up in half a minute, and not after the kernel's two hours."""


class Database:
    """The daemons' way to PostgreSQL: autocommit connections from a pool of at most `size`.

    `on_connect` runs on each new connection after it is configured (the identity check of Recovery).
    """

    def __init__(
        self, url: str, *, name: str, size: int = 4, timeouts: Timeouts | None = None, on_connect: Hook | None = None
    ) -> None:
        self.url = url
        self.timeouts = timeouts or Timeouts()
        self._on_connect = on_connect
        self._name = name
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            timeout=self.timeouts.connect,
            reconnect_timeout=self.timeouts.connect,
            max_idle=300.0,
            check=AsyncConnectionPool.check_connection,
            configure=self._configure,
            kwargs={
                "autocommit": True,
                "connect_timeout": max(2, int(self.timeouts.connect)),
                "application_name": name,
                **LINE,
            },
        )

    async def open(self) -> None:
        """Start the pool; does not wait for the database."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(timeout=2.0)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        await configure(connection, self.timeouts)
        if self._on_connect is not None:
            await self._on_connect(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for a few statements. Raises one of `AWAY` within `timeouts.connect` seconds."""
        async with self._pool.connection() as connection:
            try:
                yield connection
            except ReadOnlySqlTransaction:
                # The next one may reach the server that takes writes, or a session that may.
                await connection.close()
                raise

    async def dedicated(self) -> AsyncConnection[Any]:
        """A connection outside the pool (LISTEN, probes); the caller closes it."""
        connection = await AsyncConnection.connect(
            self.url,
            autocommit=True,
            connect_timeout=max(2, int(self.timeouts.connect)),
            application_name=self._name,
            **LINE,
        )
        await configure(connection, self.timeouts)
        return connection


_left: set[asyncio.Task[Any]] = set()


async def within(seconds: float, work: Coroutine[Any, Any, Found]) -> Found:
    """Await this for at most so long, because a line that says nothing ends no statement. Raises TimeoutError (`AWAY`).

    The work is cancelled then and left alone: psycopg takes seconds of its own to close such a line.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError(f"the database has said nothing for {seconds:.0f} seconds")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _left.add(task)
            task.add_done_callback(_end_of_left)


def _end_of_left(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # nobody waits for it any more


def records(connection: AsyncConnection[Any]) -> AsyncCursor[Any]:
    """A cursor whose rows are named tuples of the statement's own column names."""
    return connection.cursor(row_factory=namedtuple_row)
