"""A database with many rows, and the statistics under which its statements are planned."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from fix_database import clone
from schema import backlog

STATISTICS = ("of an empty table", "of a few", "never taken", "vacuumed alone", "fresh")


@contextmanager
def filled(server: str, template: str, *statements: Any) -> Iterator[str]:
    """Filled past the triggers; the statistics are those of empty tables, until a test takes others."""
    with clone(server, template) as url:
        with psycopg.connect(url, autocommit=True) as own:
            own.execute("SET session_replication_role = replica")
            for table in ("intents", "outbox", "idempotency_keys", "dead_letters", "requests"):
                own.execute(f"ALTER TABLE idem.{table} SET (autovacuum_enabled = off)")
                own.execute(f"ANALYZE idem.{table}")
            for statement in statements:
                own.execute(statement)
        yield url


@contextmanager
def planned(url: str, statistics: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose statements are planned by these statistics."""
    if statistics == "never taken":
        backlog.forget_statistics(url)
    with psycopg.connect(url, autocommit=True) as connection:
        if statistics == "of a few":
            connection.execute("UPDATE pg_class SET reltuples = 5, relpages = 1 WHERE oid = 'idem.intents'::regclass")
        if statistics == "vacuumed alone":
            connection.execute("VACUUM idem.intents")
        if statistics == "fresh":
            connection.execute("ANALYZE")
        yield connection
