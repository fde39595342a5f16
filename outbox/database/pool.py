"""Connections of the daemons: a small pool whose sessions have idem's own settings, not those of the role.

READ COMMITTED; durable commits; statement, lock and idle timeouts; values in one form; no row hidden in silence;
generic plans that go by an index and in its order (`database.session`, docs/decisions/0005, 0024): what was empty or
little when a plan was made is read whole by it for as long as it lives.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, Protocol, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from idem.outbox.database import preconditions, session
from idem.outbox.database.address import Address
from idem.outbox.database.bounded import BoundedConnection
from idem.outbox.database.memory import Beat
from idem.outbox.database.server_errors import REFUSED, DatabaseAway, away
from idem.outbox.database.session import Timeouts
from idem.outbox.values.errors import ConfigError, StoreUnavailable, one_line

__all__ = [
    "AWAY",
    "REFUSED",
    "Database",
    "DatabaseAway",
    "Hook",
    "Timeouts",
    "fields_of",
    "is_true",
    "records",
    "time_limited",
]

# The pool writes a line for each failed attempt to connect; the daemons write one for each outage.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR + 1)

AWAY: Final[tuple[type[Exception], ...]] = (DatabaseAway, PoolTimeout, PoolClosed, OSError)
"""What an unreachable or dying database looks like to the code that uses it."""


def met_away(error: BaseException | None) -> bool | None:
    """Whether a piece of work met an unreachable database; None: unknown."""
    if isinstance(error, StoreUnavailable):
        return None if error.__cause__ is None else met_away(error.__cause__)
    if isinstance(error, ConfigError):
        return None
    if isinstance(error, PoolTimeout) and error.__cause__ is None:
        return None  # all connections are in use, and none was refused
    return isinstance(error, AWAY)


Found = TypeVar("Found")


class Hook(Protocol):
    """What runs on each new connection, and gets each heartbeat that a connection has committed."""

    async def __call__(self, connection: AsyncConnection[Any]) -> None: ...

    async def beaten(self, connection: AsyncConnection[Any], beat: Beat) -> None: ...


PROVEN: Final = 2.0
"""Seconds for which an answer shows that a connection lives, if nothing has come on it since. After them it is asked
before it is used, which costs a round trip. A line that goes silent within them is given up after `silence`."""

AT_HAND: Final = 60.0
"""Seconds for which connections are not given back to the pool, while nobody waits for one."""

LAST_WORDS: Final = 10.0
"""Seconds that one wait for the database may last in a process that ends."""


class Database:
    """The daemons' way to PostgreSQL: autocommit connections from a pool of at most `size`.

    `on_connect` runs on each new connection after it is configured (the identity check of Recovery), and remembers
    the heartbeats.
    """

    def __init__(
        self,
        address: Address | str,
        *,
        name: str,
        size: int = 4,
        timeouts: Timeouts | None = None,
        on_connect: Hook | None = None,
    ) -> None:
        self.address = Address.of(address)
        self.size = size
        self.timeouts = timeouts or Timeouts()
        self._on_connect = on_connect
        self._name = name
        self._refused: Exception | None = None
        self._dedicated: WeakSet[BoundedConnection] = WeakSet()
        self._hurry: float | None = None
        self._at_hand: BoundedConnection | None = None
        self._at_hand_until = 0.0
        self._asking = 0
        self._pool: AsyncConnectionPool[BoundedConnection] = AsyncConnectionPool(
            min_size=1,
            max_size=size,
            open=False,
            timeout=self.timeouts.connect,
            reconnect_timeout=self.timeouts.connect,
            max_idle=300.0,
            connection_class=self._connection_class(),
            check=self._check,
            configure=self._configure,
            kwargs=session.options(name, self.timeouts.connect),
        )

    def _connection_class(self) -> type[BoundedConnection]:
        database = self

        class Ours(BoundedConnection):
            """A connection of this pool: the address is read when it is made, and what refused it is kept."""

            @classmethod
            async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
                try:
                    made = await super().connect(database.address.now(), **kwargs)
                except Exception as error:
                    database._refused = error
                    raise
                database._refused = None
                database._dedicated.add(made)
                return made

        return Ours

    async def open(self) -> None:
        """Start the pool; does not wait for the database."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        self._at_hand_until = 0.0
        if self._at_hand is not None:
            kept, self._at_hand = self._at_hand, None
            await self._pool.putconn(kept)
        await self._pool.close(timeout=2.0)

    async def _configure(self, connection: BoundedConnection) -> None:
        connection.silence = self._hurry or self.timeouts.silence()
        try:
            await session.make_ours(connection, self.address, self._name, self.timeouts)
            await preconditions.refuse(connection)
            if self._on_connect is not None:
                await self._on_connect(connection)
        except Exception as error:
            self._refused = error
            raise

    async def _check(self, connection: BoundedConnection) -> None:
        if connection.has_answered(PROVEN):
            return
        # A silent one must not use up the caller's time: the next one may be new.
        with connection.bounded(self.timeouts.connect / 2):
            await AsyncConnectionPool.check_connection(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[BoundedConnection]:
        """A connection for a few statements. Raises one of `AWAY` within `timeouts.connect` seconds."""
        connection = await self._given()
        try:
            yield connection
        except psycopg.Error as error:
            lost = away(error, closed=connection.closed)
            if lost is None:
                raise
            # The next one may reach the server that takes writes, or a session that may.
            await connection.close()
            if lost is error:
                raise
            raise lost from error
        finally:
            if self._stays_at_hand(connection):
                self._at_hand = connection
            else:
                # One that is not idle is in a state that nobody asked for: the pool closes it, or rolls it back.
                await self._pool.putconn(connection)

    def _stays_at_hand(self, connection: BoundedConnection) -> bool:
        """Whether the next one who asks gets this one, as it was used last: the pool would give each in turn, which all
        are to be asked whether they live then. Not while somebody waits for the pool."""
        return (
            self._at_hand is None
            and not self._asking
            and time.monotonic() < self._at_hand_until
            and connection.pgconn.transaction_status == TransactionStatus.IDLE
        )

    async def _given(self) -> BoundedConnection:
        if self._at_hand is not None:
            connection, self._at_hand = self._at_hand, None
            if connection.has_answered(PROVEN):
                return connection
            # The pool asks it, and gives another one where it says nothing.
            await self._pool.putconn(connection)
        self._asking += 1
        try:
            connection = await self._pool.getconn()
            # The pool closes what is too old, and what is too many, among those that it is given back.
            self._at_hand_until = time.monotonic() + AT_HAND
            return connection
        except PoolTimeout as late:
            if self._refused is None:
                raise
            # The pool says only that it has none; what refused one says why.
            raise PoolTimeout(one_line(self._refused)) from late
        finally:
            self._asking -= 1

    async def beaten(self, connection: AsyncConnection[Any], beat: Beat) -> None:
        """A heartbeat was committed on this connection: what the database must not forget any more."""
        if self._on_connect is not None:
            await self._on_connect.beaten(connection, beat)

    async def dedicated(self) -> BoundedConnection:
        """A connection outside the pool (LISTEN, probes); the caller closes it. Raises one of `AWAY`, and ConfigError
        behind a pooler that keeps no sessions."""
        connection = await session.connect(self.address, name=self._name, timeouts=self.timeouts)
        self._dedicated.add(connection)
        if self._hurry is not None:
            connection.hasten(self._hurry)
        return connection

    async def hasten_after(self, stop: asyncio.Event, seconds: float = LAST_WORDS) -> None:
        """Once `stop` is set, no wait for this database lasts longer than so many seconds: a process that
        ends must not wait on a silent connection until its supervisor kills it."""
        await stop.wait()
        self._hurry = seconds
        for connection in list(self._dedicated):
            connection.hasten(seconds)


_left: set[asyncio.Task[Any]] = set()


async def time_limited(seconds: float, work: Coroutine[Any, Any, Found]) -> Found:
    """Await this for at most so long, because a silent connection ends no statement. Raises TimeoutError (`AWAY`).

    The work is cancelled then and left alone: psycopg takes seconds of its own to close such a connection.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError(f"the database has not answered for {seconds:.0f} seconds")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _left.add(task)
            task.add_done_callback(_forget_abandoned)


def _forget_abandoned(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # no task waits for it any more


async def is_true(connection: AsyncConnection[Any], question: LiteralString, values: Mapping[str, Any]) -> bool:
    """Whether the first column that this statement returns is true; False where it returns no row."""
    cursor = connection.cursor(row_factory=tuple_row)
    record = await (await cursor.execute(question, values)).fetchone()
    return bool(record and record[0])


def records(connection: AsyncConnection[Any]) -> AsyncCursor[Any]:
    """A cursor whose rows are named tuples of the statement's own column names."""
    return connection.cursor(row_factory=namedtuple_row)


def fields_of(row: Any, record: type[Any]) -> dict[str, Any]:
    """The columns of a row (of `records`) that are fields of a dataclass, by name."""
    return {each.name: getattr(row, each.name) for each in dataclasses.fields(record) if each.name in row._fields}
