"""Lets time pass in a database: the database's clock is the only clock, so a test moves the rows."""

from typing import Any

from psycopg import AsyncConnection, sql

from idem.outbox.database.pool import records

KEPT = ("installation", "operations", "api_tokens", "tenant_usage", "tenant_keys", "daemons")
"""Tables whose times are not due times: hours of counts, times of creation and use, heartbeats (running daemons give
new ones)."""

TIMES = """
SELECT c.relname::text AS table_name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.atttypid = 'timestamptz'::regtype
   AND c.relname <> ALL (%(kept)s)
 GROUP BY c.relname
 ORDER BY array_position(%(first)s::text[], c.relname::text), c.relname
"""
FIRST = ("outbox", "idempotency_keys", "intents", "dead_letters")
"""The order in which all code locks these tables, so that `advance` and a running daemon do not deadlock."""
LOCK = "SELECT FROM idem.outbox ORDER BY id FOR UPDATE"


IS_SUPERUSER = "SELECT current_setting('is_superuser') = 'on'"
WITHOUT_GUARDS = "SET LOCAL session_replication_role = replica"


async def advance(connection: AsyncConnection[Any], seconds: float) -> None:
    """Let `seconds` pass for every row of idem: each of its times moves into the past. Needs the owner of the tables.

    The guards are off meanwhile, because they forbid changes of history and lower quiet times. A superuser needs no
    lock on a table for that, so daemons may run meanwhile. Raises psycopg's error if another session holds a lock.
    """
    cursor = records(connection)
    async with connection.transaction():
        row = await (await connection.execute(IS_SUPERUSER)).fetchone()
        alone = not (row and row[0])
        if not alone:
            await connection.execute(WITHOUT_GUARDS)
            await connection.execute(LOCK)
        for found in await (await cursor.execute(TIMES, {"kept": list(KEPT), "first": list(FIRST)})).fetchall():
            table = sql.Identifier("idem", found.table_name)
            moved: list[sql.Composable] = [
                sql.SQL("{0} = {0} - make_interval(secs => {1})").format(sql.Identifier(name), seconds)
                for name in found.columns
            ]
            if alone:
                await connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
            await connection.execute(sql.SQL("UPDATE {} SET {}").format(table, sql.SQL(", ").join(moved)))
            if alone:
                await connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))
