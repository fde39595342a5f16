"""A database with 100,000 rows and more in each hot table, made past the triggers in a few seconds.

Rows 1 to 100,000 are open, those after them are completed, and old. The first half of the outbox was there when the
statistics were taken: nothing was pending then and nothing claimed, as on every queue that is kept up with.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
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
FUNCTIONS = """
CREATE FUNCTION public.ms(n integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT {now}::bigint - CASE WHEN n <= 100000 THEN (100010 - n) * 9000::bigint
                                ELSE 38880000000 - (n - 100000) * 1000000::bigint END
$$;
CREATE FUNCTION public.made(n integer) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT to_timestamp(public.ms(n) / 1000.0::float8)
$$;
CREATE FUNCTION public.id(n integer, kind integer) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(public.ms(n)), 12, '0') || '7' || lpad(to_hex(kind), 3, '0')
            || '8' || lpad(to_hex(n), 15, '0'))::uuid
$$;
"""
HISTORY = """
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, provider, account,
                          provider_reference, params, requested_at, created_at, settled_at)
SELECT public.id(n, 1), 't' || n % 7, 'pay', 'key ' || n,
       CASE WHEN n > 100000 THEN 'completed'
            WHEN n <= 25000 THEN 'failed_retryable'
            WHEN n <= 47000 THEN 'unknown' ELSE 'in_progress' END,
       CASE WHEN n > 100000 THEN 'succeeded' END, 'p' || n % 5, 'a' || n % 2,
       CASE WHEN n > 100000 THEN 'pay_' || n END, '{"amount": 100}', public.made(n), public.made(n),
       CASE WHEN n > 100000 THEN public.made(n) END
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, state, intent_id,
                                   response_status, response_headers, response_body, created_at, completed_at,
                                   expires_at)
SELECT 't' || n % 7, 'pay', 'key ' || n, 'v1:0',
       CASE WHEN n > 128000 THEN 'expired' WHEN n > 100000 THEN 'completed'
            WHEN n <= 25000 THEN 'failed_retryable'
            WHEN n <= 47000 THEN 'unknown' ELSE 'in_progress' END,
       public.id(n, 1), CASE WHEN n > 100000 AND n <= 128000 THEN 201 END,
       CASE WHEN n > 100000 AND n <= 128000 THEN '{}'::jsonb END,
       CASE WHEN n > 100000 AND n <= 128000 THEN '\\x7b7d'::bytea END,
       public.made(n), CASE WHEN n > 100000 THEN public.made(n) END,
       now() + CASE WHEN n % 20 = 0 THEN -1 ELSE 1 END * (1 + n % 100) * interval '1 minute'
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body,
                           created_at)
SELECT public.id(n, 2), public.id(n, 1), public.id(n, 3), 'p' || n % 5, 'a' || n % 2, 'POST', '/payments', '{}',
       '\\x7b7d', public.made(n)
  FROM generate_series(1, 130000) AS n WHERE n NOT BETWEEN 99001 AND 100000;
INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, at)
SELECT public.id(n, 1), public.id(n, 2), 1, 0, public.id(n, 4), 'accept', 'accepted', public.made(n)
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.events (id, aggregateid, number, type, payload, created_at)
SELECT public.id(n, 16 + number), public.id(n, 1), number, 'completed', '{}', public.made(n)
  FROM generate_series(96000, 130000) AS n, generate_series(1, 3) AS number;
INSERT INTO idem.webhook_events (id, provider, account, event_id, verdict, intent_id, outbox_id, received_at, reference,
                                 retry_at)
SELECT public.id(n, 5), 'p' || n % 5, 'a' || n % 2, 'evt_' || n,
       CASE WHEN n <= 38000 THEN 'unmatched' WHEN n <= 40000 THEN 'hint' ELSE 'applied' END, public.id(n, 1),
       public.id(n, 2), public.made(n), 'pay_' || n,
       CASE WHEN n <= 40000
            THEN now() + CASE WHEN n <= 31000 OR n > 38000 THEN -1 ELSE 1 END * (n % 1000) * interval '1 s' END
  FROM generate_series(30001, 130000) AS n;
INSERT INTO idem.dead_letters (id, intent_id, reason, resolved_at, resolution, resolved_by)
SELECT public.id(n, 6), public.id(n, 1), CASE WHEN n <= 25000 THEN 'rejected' ELSE 'conflict' END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN now() END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN 'completed' END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN 'anna' END
  FROM generate_series(1, 130000) AS n WHERE n <= 30000 OR n > 60000;
"""
DEPENDENT = """
INSERT INTO idem.tenant_keys (tenant_id, active, counted_to, counted_at)
SELECT 't' || n, 100, idem.first_uuid7(now() - interval '3 minutes'), now() - interval '2 hours'
  FROM generate_series(0, 5000) AS n;
INSERT INTO idem.tenant_usage (tenant_id, hour, requests, mismatch)
SELECT 't' || n % 1000, date_trunc('hour', now()) - n / 1000 * interval '8 hours', n, n % 10
  FROM generate_series(0, 99999) AS n;
INSERT INTO idem.handled_events (event_id, handler)
SELECT e.id, 'mark_order' FROM idem.events e;
INSERT INTO idem.event_handlers (name, operation, backfill_after, backfilled_intent, backfilled_number)
SELECT name, 'pay', '1', CASE name WHEN 'walks' THEN public.id(100001, 1) END, CASE name WHEN 'walks' THEN 1 END
  FROM unnest(ARRAY['mark_order', 'walks', 'stopped', 'mail']) AS name;
INSERT INTO idem.handler_work (handler, intent_id, number, event_id, due_at, dead_letter_id)
SELECT CASE WHEN n > 129000 THEN '*' WHEN n % 2 = 0 THEN 'mail' ELSE 'stopped' END, e.aggregateid, e.number, e.id,
       CASE WHEN n <= 129000 AND n % 2 = 1 THEN 'infinity' ELSE now() - interval '1 minute' END,
       CASE WHEN n <= 129000 AND n % 2 = 1 AND number = 1 THEN public.id(n, 6) END
  FROM generate_series(96000, 130000) AS n JOIN idem.events e ON e.aggregateid = public.id(n, 1);
INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body, received_at)
SELECT w.id, '{}', '\\x7b7d', w.received_at FROM idem.webhook_events w;
"""
QUEUE = """
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, redrive_at, claim_token, claimed_by,
                         claimed_at, claimed_until, first_sent_at, quiet_after, provider_key, attempt, replay_window,
                         status, operation, provider, account, origin, ordering_key, tenant_id)
SELECT public.id(n, 2), public.id(n, 1),
       now() + CASE WHEN n > 50000 AND n %% 4 > 0 OR n %% 97 = 0 THEN -1 ELSE 1 END * (1 + n %% 1000) * interval '1 s',
       now() + CASE WHEN n > 50000 AND n %% 40 = 3 THEN -1 ELSE 1 END * (1 + n %% 1000) * interval '1 minute',
       public.made(n),
       CASE WHEN n <= 1000 THEN now() + (n - 500) * interval '1 s' END,
       CASE WHEN s = 'claimed' THEN CASE WHEN live AND n %% 10 = 0 AND n <= 91000 THEN %(token)s::uuid
                                         ELSE public.id(n, 7) END END,
       CASE WHEN s = 'claimed' THEN 'worker ' || n %% 9 END,
       CASE WHEN s = 'claimed' THEN now() END,
       CASE WHEN s = 'claimed' THEN now() + CASE WHEN live THEN 1 ELSE -1 END * interval '1 hour' END,
       CASE WHEN s IN ('claimed', 'unknown', 'awaiting') THEN now() - interval '1 minute' END,
       CASE WHEN s = 'unknown' THEN now() END, public.id(n, 3), 1, 86400,
       s, 'pay', 'p' || n %% 5, 'a' || n %% 2, 'https://bank.test',
       CASE WHEN s = 'waiting' THEN 'order ' || n %% 50 END, 't' || n %% 7
  FROM (SELECT n, n <= 94000 AS live,
               CASE WHEN n <= 25000 THEN 'held' WHEN n <= 47000 THEN 'unknown' WHEN n <= 50000 THEN 'awaiting'
                    WHEN n <= 90000 THEN 'pending' WHEN n <= 96000 THEN 'claimed' WHEN n <= 99000 THEN 'waiting'
                    ELSE 'unfrozen' END AS s
          FROM generate_series(%(first)s::integer, %(last)s::integer) AS n) AS x
"""
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
