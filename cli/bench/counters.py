"""What PostgreSQL counts about the database of a bench."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the database was made, without what this session did. `statements`: None if the server has no
    pg_stat_statements, or shows it to others only. `dead`: row versions that updates and deletes left behind. `disk`:
    bytes of tables, indexes and TOAST.
    """

    commits: int
    dead: int
    disk: int
    statements: int | None

    def since(self, before: Counters) -> Counters:
        """What was added."""
        return Counters(
            self.commits - before.commits,
            self.dead - before.dead,
            self.disk - before.disk,
            None if self.statements is None or before.statements is None else self.statements - before.statements,
        )


# What a session has done is counted by PostgreSQL when the session ends, or a second or more later.
FLUSH = "SELECT pg_stat_force_next_flush()"
COUNTED = """
SELECT d.xact_commit,
       (SELECT coalesce(sum(t.n_tup_upd + t.n_tup_del), 0)::bigint FROM pg_stat_user_tables t
         WHERE t.schemaname = %(schema)s),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
         WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind IN ('r', 'p'))
  FROM pg_stat_database d WHERE d.datname = current_database()
"""
STATEMENTS = """
SELECT sum(s.calls)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE d.datname = current_database()
"""
WAL = "SELECT pg_current_wal_lsn() - '0/0'"


class CounterReader:
    """One session in the database of a bench that reads what the server counts, and counts what it asks itself."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._asked = 0
        self._flushes = connection.info.server_version >= 150000
        self._has_statements = self._prepare_statements()

    @property
    def pid(self) -> int:
        """The backend of this session."""
        return self._connection.info.backend_pid

    def ask(self, statement: str, **values: object) -> tuple[object, ...]:
        """One row."""
        self._asked += 1
        row = self._connection.execute(statement, values).fetchone()
        assert row is not None
        return row

    def maintain(self) -> None:
        """VACUUM and ANALYZE of the whole database, so that each workload begins alike."""
        self._asked += 1
        self._connection.execute("VACUUM ANALYZE")

    def wal(self) -> int:
        """The bytes of WAL that the server has written, for all its databases."""
        return int(str(self.ask(WAL)[0]))

    def counters(self, schema: str) -> Counters:
        """What is counted by now, about the tables of this schema."""
        if self._flushes:
            self.ask(FLUSH)
        commits, dead, disk = (int(str(value)) for value in self.ask(COUNTED, schema=schema))
        statements = int(str(self.ask(STATEMENTS)[0] or 0)) - self._asked if self._has_statements else None
        return Counters(commits - self._asked, dead, disk, statements)

    def _prepare_statements(self) -> bool:
        try:
            self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
            self._connection.execute("SET search_path = pg_catalog, public, pg_temp")
            self._connection.execute(STATEMENTS)
        except psycopg.Error:
            return False
        return True
