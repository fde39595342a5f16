"""Another session that holds rows of one intent, as a person's psql does who looks at them `FOR UPDATE`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

ROWS = {
    "outbox": "intent_id = %(intent)s",
    "idempotency_keys": "intent_id = %(intent)s",
    "intents": "id = %(intent)s",
    "dead_letters": "intent_id = %(intent)s",
    "proofs": "intent_id = %(intent)s",
    "requests": "intent_id = %(intent)s",
    "evidence": "intent_id = %(intent)s",
    "events": "aggregateid = %(intent)s",
    "handler_work": "intent_id = %(intent)s",
    "webhook_events": "intent_id = %(intent)s",
}
"""Every table that has rows of an intent, and which these are."""


@contextmanager
def holding(url: str, table: str, intent: UUID) -> Iterator[int]:
    """Hold every row of this intent in one table until the block ends; how many there are."""
    with psycopg.connect(url) as session:
        query = sql.SQL("SELECT ctid FROM {} WHERE " + ROWS[table] + " FOR UPDATE").format(
            sql.Identifier("idem", table)
        )
        rows: list[Any] = session.execute(query, {"intent": intent}).fetchall()
        yield len(rows)
        session.rollback()


def terminate(superuser_url: str, pid: int) -> None:
    """End a session of this test's own, and wait until it has ended."""
    with psycopg.connect(superuser_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%(pid)s, 10000)", {"pid": pid})
