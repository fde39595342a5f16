"""Intents by bulk SQL, as accept and the daemons write them, for measurements over many rows."""

from typing import Final

import psycopg

# `statuses`: of the open row; `settled`: there is none. Every kind is of the lane `keyed`, of one tenant.
SEED: Final = """
WITH s AS MATERIALIZED (
    SELECT g, idem.uuid7() AS intent, idem.uuid7() AS row, gen_random_uuid() AS key
      FROM generate_series(1, %(rows)s) AS g
), intents AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, provider, account,
                              provider_reference, params, result, requested_at, created_at, settled_at)
    SELECT s.intent, 't', 'pay.keyed', s.intent::text, %(state)s,
           CASE WHEN %(state)s = 'completed' THEN 'succeeded' END, 'keyed', 'keyed',
           CASE WHEN %(state)s = 'completed' THEN 'pay_' || s.intent END, '{"amount": 100}',
           CASE WHEN %(state)s = 'completed' THEN '{}'::jsonb END, now(), now(),
           CASE WHEN %(state)s = 'completed' THEN now() END
      FROM s ORDER BY s.g
), keys AS (
    INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, state, intent_id, expires_at,
                                       response_status, response_headers, response_body, completed_at)
    SELECT 't', 'pay.keyed', s.intent::text, 'v1:' || encode(sha256(s.g::text::bytea), 'hex'), %(state)s, s.intent,
           now() + make_interval(secs => %(lives)s),
           CASE WHEN %(state)s = 'completed' THEN 201 END,
           CASE WHEN %(state)s = 'completed' THEN '{"content-type": "application/json"}'::jsonb END,
           CASE WHEN %(state)s = 'completed' THEN '{"payment": "pay_1"}'::bytea END,
           CASE WHEN %(state)s = 'completed' THEN now() END
      FROM s ORDER BY s.g
), rows AS (
    INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation, provider,
                             account, origin, provider_key, replay_window, tenant_id, first_sent_at)
    SELECT s.row, s.intent, %(status)s, now(), now() + make_interval(secs => %(due_in)s) + s.g * interval '1 us',
           now() + interval '1 day', 'pay.keyed', 'keyed', 'keyed', %(origin)s, s.key, 86400, 't',
           CASE WHEN %(status)s = 'unknown' THEN now() END
      FROM s WHERE %(status)s <> 'settled' ORDER BY s.g
), requests AS (
    INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
    SELECT s.row, s.intent, s.key, 'keyed', 'keyed', 'POST', '/payments',
           '{"content-type": "application/json", "idempotency-key": "0123456789"}', '{"amount":100,"currency":"eur"}'
      FROM s ORDER BY s.g
), events AS (
    INSERT INTO idem.events (aggregateid, number, type, payload)
    SELECT s.intent, 1, 'completed', jsonb_build_object('intent', s.intent, 'number', 1, 'tenant', 't')
      FROM s WHERE %(status)s = 'settled' ORDER BY s.g
), ended AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, outcome, from_state, to_state)
    SELECT s.intent, s.row, 1, 1, s.key, 'worker', 'report', 'succeeded', 'in_progress', 'completed'
      FROM s WHERE %(status)s = 'settled' ORDER BY s.g
)
INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status)
SELECT s.intent, s.row, 1, 0, 'accept', 'accepted', 'in_progress', 'pending' FROM s ORDER BY s.g
"""
PAGE: Final = 100_000
"""Rows of one statement."""


def seed(
    url: str, rows: int, *, status: str = "pending", state: str = "in_progress", origin: str, due_in: float = -60.0,
    lives: float = 86400.0,
) -> None:  # fmt: skip
    """Write `rows` intents past the triggers, and no statistics. `due_in` and `lives` (of the keys) in seconds."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET work_mem = '256MB'")
        for page in range(0, rows, PAGE):
            connection.execute(
                SEED,
                {
                    "rows": min(PAGE, rows - page), "status": status, "state": state, "origin": origin,
                    "due_in": due_in, "lives": lives,
                },
            )  # fmt: skip
