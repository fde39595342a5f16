"""Which rows a statement touches, and whether it waits for one that another session holds."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

Connection: TypeAlias = psycopg.Connection[Any]
# To look through every table for each statement takes minutes.
TABLES = """
SELECT DISTINCT c.relname FROM pg_class c JOIN pg_locks l ON l.relation = c.oid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
   AND l.pid = %s AND l.mode IN ('RowShareLock', 'RowExclusiveLock') ORDER BY 1
"""
XID = "SELECT (pg_current_xact_id_if_assigned()::text::numeric % 4294967296)::text"


def touched(own: Connection, other: Connection, statement: str, values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The places of the rows that a statement locks, changes or deletes, by table: the first and the last of each.

    Their `xmax` names its transaction, for every other session to see. Both sessions are rolled back.
    """
    own.execute(statement, values)  # type: ignore[call-overload]
    found: dict[str, list[str]] = {}
    (xid,) = own.execute(XID).fetchone() or (None,)
    if xid is not None:
        own.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for (table,) in other.execute(TABLES, [own.info.backend_pid]).fetchall():
            query = sql.SQL("SELECT ctid::text FROM {} WHERE xmax = %s::xid ORDER BY ctid")
            rows = [r[0] for r in other.execute(query.format(sql.Identifier("idem", table)), [xid]).fetchall()]
            if rows:
                found[table] = list(dict.fromkeys((rows[0], rows[-1])))
    own.rollback()
    other.rollback()
    return found


def waits(
    own: Connection, other: Connection, statement: str, values: Mapping[str, Any], table: str, place: str
) -> bool:
    """Whether the statement waits for one row that another session holds. Both are rolled back."""
    query = sql.SQL("SELECT FROM {} WHERE ctid = %s::tid FOR UPDATE").format(sql.Identifier("idem", table))
    assert other.execute(query, [place]).rowcount == 1
    own.execute("SET LOCAL lock_timeout = '50ms'")
    try:
        own.execute(statement, values)  # type: ignore[call-overload]
        own.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except LockNotAvailable:
        return True
    finally:
        own.rollback()
        other.rollback()
    return False
