"""A pooler in transaction mode: consecutive statements of one session run on different servers.

Settings, LISTEN, prepared statements and session locks of idem would be lost there, and left to other programs. So
idem finds it out before it sets anything, and refuses.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from idem.outbox.database.bounded import BlockingConnection, BoundedConnection
from idem.outbox.values.errors import ConfigError

WHAT: Final = (
    "a pooler in transaction mode is in front of the database: consecutive statements of one session run on different "
    "server sessions, so idem's own settings (timeouts, durable commits) and prepared statements are lost, or leak to "
    "other clients"
)
DO: Final = "Connect idem directly to the database, or through a pool in session mode (PgBouncer: pool_mode = session)"

PATIENCE: Final = 5.0
"""Seconds for each question to a pooler: one with a single connection makes us wait for ourselves."""

BACKEND: Final = "SELECT pg_backend_pid()"


async def behind(connection: AsyncConnection[Any]) -> bool:
    """Whether the server behind this connection is another than the one that greeted us: a pooler is between."""
    found = await _backend(connection)
    if isinstance(connection, BoundedConnection):
        connection.served_by = found
    return connection.info.backend_pid != found


def server_of(connection: AsyncConnection[Any]) -> int:
    """The server's process that works for this connection, also behind a pooler in session mode."""
    return getattr(connection, "served_by", None) or connection.info.backend_pid


async def shares_servers(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool | None:
    """Whether a pooler gives each transaction another server; None where it did not answer in time.

    Both connections are autocommit and have none of idem's settings.
    """
    before = await _backend(ours)
    try:
        async with asyncio.timeout(PATIENCE), other.transaction():
            # A pooler in transaction mode gives it the server that we had, and us another one, or none.
            if await _backend(other) == before:
                return True
            return await _backend(ours) != before
    except (TimeoutError, psycopg.OperationalError):
        return None


async def refuse_pooler(
    connection: AsyncConnection[Any], another: Callable[[], Awaitable[AsyncConnection[Any]]]
) -> None:
    """Raises ConfigError behind a pooler in transaction mode; `another` opens a second connection for the question."""
    if not await behind(connection):
        return
    other = await another()
    try:
        shared = await shares_servers(connection, other)
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await other.close()
    if shared:
        raise ConfigError(f"{WHAT}. {DO}")


def refuse_pooler_sync(connection: Connection[Any], another: Callable[[], Connection[Any]]) -> None:
    """The same for synchronous code. A pool that has no second server for us within PATIENCE is not asked."""
    before = _backend_sync(connection)
    if connection.info.backend_pid == before:
        return
    with contextlib.suppress(psycopg.OperationalError), another() as other:
        if isinstance(other, BlockingConnection):
            other.silence = PATIENCE
        with other.transaction():
            shared = _backend_sync(other) == before
            # Asked only where the other has a server of its own: one with a single server would keep us waiting.
            if shared or _backend_sync(connection) != before:
                raise ConfigError(f"{WHAT}. {DO}")


async def _backend(connection: AsyncConnection[Any]) -> int:
    row = await (await connection.cursor(row_factory=tuple_row).execute(BACKEND)).fetchone()
    return int(row[0]) if row else 0


def _backend_sync(connection: Connection[Any]) -> int:
    row = connection.cursor(row_factory=tuple_row).execute(BACKEND).fetchone()
    return int(row[0]) if row else 0
