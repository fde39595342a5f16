"""Sessions of `idem db`, each with the settings that a migration needs, regardless of the database and the role."""

from typing import Any, Final

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from idem.migrations.silence import Session

LOCK_WAIT: Final = 60.0
"""Seconds for which a starter waits for the upgrade before it."""


class MigrationError(RuntimeError):
    """The schema cannot be upgraded; the text says why and what to do."""


SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "row_security": "off",
    "search_path": "pg_catalog, pg_temp",
    "statement_timeout": "0",
    # No wait for another session is without an end; an upgrade sets its own for the strong locks.
    "lock_timeout": f"{int(LOCK_WAIT * 1000)}",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}
"""What a session asks for, whatever the database and the role say: an index of a large table takes its time."""

ASK = """
SELECT set_config(s.name, s.value, false) FROM unnest(%(names)s::text[], %(values)s::text[]) AS s (name, value)
 WHERE current_setting(s.name, true) IS NOT NULL
"""


def engine(url: str) -> Engine:
    """A SQLAlchemy engine over psycopg for a `postgresql://` URL, without a pool; its sessions have `SETTINGS`."""

    def connect() -> psycopg.Connection[Any]:
        connection = _opened(url)
        try:
            _refuse_pooler(connection, url)
            connection.execute(ASK, {"names": list(SETTINGS), "values": list(SETTINGS.values())})
        except BaseException:
            connection.close()
            raise
        connection.autocommit = False
        return connection

    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def _opened(url: str) -> Session:
    # libpq reads the URL, several hosts too.
    return Session.connect(
        url, autocommit=True, client_encoding="UTF8", application_name="idem db", prepare_threshold=None
    )


BACKEND = "SELECT pg_backend_pid()"


def _refuse_pooler(connection: Session, url: str) -> None:
    """Raises MigrationError, with nothing set, where consecutive statements of a session run on different servers."""
    before = connection.execute(BACKEND).fetchone()
    connection.backend = None if before is None else before[0]
    if connection.backend == connection.info.backend_pid:
        return
    with _opened(url) as other, other.transaction():
        # A pooler in transaction mode gives it the server that we had, and us another one.
        if other.execute(BACKEND).fetchone() == before or connection.execute(BACKEND).fetchone() != before:
            raise MigrationError(
                "there is a pooler in transaction mode before the database, but a migration needs its own session. "
                "Give idem the database's own address, or a pool in session mode (PgBouncer: pool_mode = session)"
            )


LOCK_TIMEOUTS: Final = ("55P03", "40P01")
"""The SQLSTATEs of a lock that another session holds for too long."""


def state_of(error: DBAPIError) -> str | None:
    """The SQLSTATE of an error, over psycopg or asyncpg."""
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def milliseconds(seconds: float) -> str:
    """A duration as PostgreSQL's `lock_timeout` takes it."""
    return f"{max(1, int(seconds * 1000))}ms"
