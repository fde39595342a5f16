"""Opens idem's own sessions: each has these settings, instead of those of the server, database or role.

`ALTER DATABASE … SET` and `ALTER ROLE … SET` change how values are written, read and compared, and which rows a
statement finds. idem's programs open each connection here, so that no such setting reaches their statements.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.database.address import Address
from idem.outbox.database.bounded import BlockingConnection, BoundedConnection
from idem.outbox.database.jsonb import JsonbLoader
from idem.outbox.database.pooler import refuse_pooler, refuse_pooler_sync


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `connect` also bounds how long a caller waits for a free connection."""

    statement: float = 30.0
    lock: float = 5.0
    idle_in_transaction: float = 30.0
    connect: float = 5.0

    def silence(self, statements: int = 1) -> float:
        """Seconds after which so many statements on a connection of the pool have ended, unless it is silent."""
        return self.connect + statements * self.statement + 1.0


CONNECTION: Final[Mapping[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Milliseconds for which what was sent may stay unacknowledged by the other end's kernel.
    "tcp_user_timeout": 30_000,
    # psycopg gives bytes for texts where the database names no encoding.
    "client_encoding": "UTF8",
}
"""How each connection is opened: one whose other end is gone without a word is given up in half a minute, and not
after the kernel's two hours."""

VALUES: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
}
"""How values are written and read: for handlers too, which share their transaction with idem's own statements."""

STATEMENTS: Final[Mapping[str, str]] = {
    **VALUES,
    # A statement that a policy would hide rows from fails, and finds no fewer rows in silence.
    "row_security": "off",
    "search_path": "pg_catalog, pg_temp",
    # READ COMMITTED, so that guarded updates do not raise 40001.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "gin_fuzzy_search_limit": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
"""The same, and how statements of idem's alone are run."""

PLANS: Final[Mapping[str, str]] = {
    # A queue's statistics are always wrong (docs/decisions/0005): by an index and in its order.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "jit": "off",
}

# What this version of the server does not know is left out.
SETTINGS = """
SELECT set_config(s.name, s.value, %(local)s)
  FROM unnest(%(names)s::text[], %(values)s::text[]) AS s (name, value)
 WHERE current_setting(s.name, true) IS NOT NULL
 UNION ALL
SELECT set_config('synchronous_commit', 'on', %(local)s) WHERE current_setting('synchronous_commit') = 'off'
"""


def parameters(settings: Mapping[str, str], *, local: bool = False) -> dict[str, Any]:
    """The parameters of `SETTINGS`; `local`: for the transaction alone."""
    return {"names": list(settings), "values": list(settings.values()), "local": local}


def settings(timeouts: Timeouts) -> dict[str, str]:
    """Everything that a session of idem's asks for."""
    limits = {
        "statement_timeout": timeouts.statement,
        "lock_timeout": timeouts.lock,
        "idle_in_transaction_session_timeout": timeouts.idle_in_transaction,
    }
    return {**STATEMENTS, **PLANS, **{name: f"{int(seconds * 1000)}ms" for name, seconds in limits.items()}}


async def configure(connection: AsyncConnection[Any], timeouts: Timeouts) -> None:
    """Give a session idem's settings, in one statement."""
    connection.adapters.register_loader("jsonb", JsonbLoader)
    await connection.execute(SETTINGS, parameters(settings(timeouts)))


async def bare(address: Address, *, name: str, connect_timeout: float = 5.0, **more: Any) -> BoundedConnection:
    """An autocommit connection without idem's settings: for questions about the way itself. The caller closes it.

    `connect_timeout` in seconds. Raises psycopg.OperationalError.
    """
    return await BoundedConnection.connect(address.now(), **{**options(name, connect_timeout), **more})


def bare_sync(address: Address, *, name: str, connect_timeout: float = 5.0, **more: Any) -> BlockingConnection:
    """The same for synchronous code."""
    return BlockingConnection.connect(address.now(), **{**options(name, connect_timeout), **more})


async def make_ours(connection: AsyncConnection[Any], address: Address, name: str, timeouts: Timeouts) -> None:
    """Give a fresh session idem's settings. Raises ConfigError, with nothing set, where it would not keep them."""
    await refuse_pooler(connection, lambda: bare(address, name=name, connect_timeout=timeouts.connect))
    await configure(connection, timeouts)


async def connect(
    address: Address | str, *, name: str, timeouts: Timeouts | None = None, **more: Any
) -> BoundedConnection:
    """An autocommit connection with idem's settings; the caller closes it.

    Raises psycopg.OperationalError, and ConfigError behind a pooler that keeps no sessions.
    """
    limits, address = timeouts or Timeouts(), Address.of(address)
    connection = await bare(address, name=name, connect_timeout=limits.connect, **more)
    try:
        connection.silence = limits.silence()
        await make_ours(connection, address, name, limits)
    except BaseException:
        await connection.close()
        raise
    return connection


def connect_sync(
    address: Address | str, *, name: str, timeouts: Timeouts | None = None, **more: Any
) -> BlockingConnection:
    """The same for synchronous code."""
    limits, address = timeouts or Timeouts(), Address.of(address)
    connection = bare_sync(address, name=name, connect_timeout=limits.connect, **more)
    connection.silence = limits.silence()
    try:
        refuse_pooler_sync(connection, lambda: bare_sync(address, name=name, connect_timeout=limits.connect))
        connection.execute(SETTINGS, parameters(settings(limits)))
    except BaseException:
        connection.close()
        raise
    return connection


def options(name: str, connect_timeout: float) -> dict[str, Any]:
    """How every connection is opened, in the words of psycopg."""
    return {"autocommit": True, "connect_timeout": max(2, int(connect_timeout)), "application_name": name, **CONNECTION}
