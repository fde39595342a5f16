"""A database with 100,000 rows and more in each hot table, made past the triggers in a few seconds.

Rows 1 to 100,000 are open, those after them are completed, and old. The first half of the outbox was there when the
statistics were taken: nothing was pending then and nothing claimed, as on every queue that is kept up with.
"""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

OPEN, HALF, ALL = 100_000, 50_000, 130_000
TOKEN = UUID(int=0xC1A1)
"""The token of the hundred live claims of lane p0/a0 that are settled as one batch."""
HOT = frozenset({
    "outbox", "idempotency_keys", "intents", "requests", "evidence", "events", "proofs", "dead_letters",
    "webhook_events", "webhook_bodies", "handled_events", "handler_work",
})  # fmt: skip

# Immutable to the last part, so that the planner puts their bodies in place of them.
FUNCTIONS = Path(__file__).with_name("backlog_functions.sql").read_text()
HISTORY = Path(__file__).with_name("backlog_history.sql").read_text()
DEPENDENT = Path(__file__).with_name("backlog_dependent.sql").read_text()
QUEUE = Path(__file__).with_name("backlog_queue.sql").read_text()
PROOFS = """
INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome, stored_at)
SELECT public.id(n, 8), public.id(n, 1), 'webhook', 'pending', now() - n * interval '1 ms'
  FROM generate_series(30001, 130000) AS n
UNION ALL
SELECT public.id(n, 2), public.id(n, 1), 'webhook', 'pending', now() - interval '1 day'
  FROM generate_series(93001, 93050) AS n
"""


def load(url: str) -> None:
    """Fill a database that has the schema; its statistics are those of the idle queue."""
    with psycopg.connect(url, autocommit=True) as connection:
        run: Any = connection.execute
        run(FUNCTIONS.format(now=run("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchone()[0]))
        for (table,) in run("SELECT tablename FROM pg_tables WHERE schemaname = 'idem'").fetchall():
            run(f"ALTER TABLE idem.{table} SET (autovacuum_enabled = off)")
    half = {"token": TOKEN, "first": 1, "last": HALF}
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(_run, url, statement) for statement in HISTORY.split(";\n") if statement.strip()]
        done.append(pool.submit(_run, url, QUEUE, half))
        wait(done)
        [one.result() for one in done]
    _run(url, DEPENDENT)
    _run(url, "ANALYZE")
    _run(url, QUEUE, {"token": TOKEN, "first": HALF + 1, "last": OPEN})
    _run(url, PROOFS)


def _run(url: str, statement: str, parameters: dict[str, Any] | None = None) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        run: Any = connection.execute
        run("SET session_replication_role = replica")
        run("SET synchronous_commit = off")
        run(statement, parameters)


def forget_statistics(url: str) -> None:
    """As if ANALYZE had never run on any table of idem."""
    with psycopg.connect(url, autocommit=True) as connection:
        ours = "(SELECT oid FROM pg_class WHERE relnamespace = 'idem'::regnamespace)"
        connection.execute(f"DELETE FROM pg_statistic WHERE starelid IN {ours}")
        connection.execute(f"UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid IN {ours}")


DRAINED = ("outbox", "requests", "proofs", "dead_letters", "handler_work")
"""The tables whose rows leave when their work is done."""
COUNTED_AS_NONE = """
UPDATE pg_class SET reltuples = 0
 WHERE relnamespace = 'idem'::regnamespace
   AND (%(tables)s::text[] IS NULL OR relname = ANY (%(tables)s)
        OR oid IN (SELECT i.indexrelid FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
                    WHERE t.relnamespace = 'idem'::regnamespace AND t.relname = ANY (%(tables)s)))
"""


def say_empty(url: str, *tables: str) -> None:
    """As if these tables (none given: every table) had been drained when they were counted: the planner believes in one
    row, and every path to it costs the same."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(COUNTED_AS_NONE, {"tables": list(tables) or None})
