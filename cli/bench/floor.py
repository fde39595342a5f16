"""`python -m idem.cli.bench.floor`: the same rows by the barest statements, in tables without triggers, checks, foreign
keys and second indexes, in schema `bench_floor`. It is what PostgreSQL itself costs, and it guarantees nothing.

`accept`: one statement a transaction over many connections. `drain`: claim 100 and end 100, a statement each.
"""

import asyncio
import os
import time
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection

from idem.cli.bench import job

SCHEMA = "bench_floor"
BATCH = 100
CREATE = """
CREATE SCHEMA bench_floor;
CREATE TABLE bench_floor.intents (
    id uuid PRIMARY KEY, tenant_id text NOT NULL, operation text NOT NULL, idempotency_key text NOT NULL,
    state text NOT NULL, outcome text, params jsonb NOT NULL, provider_reference text,
    created_at timestamptz NOT NULL DEFAULT now(), settled_at timestamptz);
CREATE TABLE bench_floor.idempotency_keys (
    tenant_id text NOT NULL, operation text NOT NULL, idempotency_key text NOT NULL, fingerprint text NOT NULL,
    state text NOT NULL, intent_id uuid NOT NULL, response_status smallint, response_headers jsonb,
    response_body bytea, created_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz,
    expires_at timestamptz NOT NULL, PRIMARY KEY (tenant_id, operation, idempotency_key));
CREATE TABLE bench_floor.outbox (
    id uuid PRIMARY KEY, intent_id uuid NOT NULL, tenant_id text NOT NULL, operation text NOT NULL,
    idempotency_key text NOT NULL, provider text NOT NULL, provider_key uuid NOT NULL, status text NOT NULL,
    available_at timestamptz NOT NULL, attempt integer NOT NULL DEFAULT 0, claim_token uuid, claimed_until timestamptz);
CREATE INDEX outbox_due ON bench_floor.outbox (available_at, id) WHERE status = 'pending';
CREATE TABLE bench_floor.requests (
    outbox_id uuid PRIMARY KEY, provider_key uuid NOT NULL, method text NOT NULL, path text NOT NULL,
    headers jsonb NOT NULL, body bytea NOT NULL);
CREATE TABLE bench_floor.evidence (
    intent_id uuid NOT NULL, id uuid NOT NULL DEFAULT gen_random_uuid(), outbox_id uuid,
    at timestamptz NOT NULL DEFAULT now(), attempt integer, token uuid, kind text NOT NULL, outcome text,
    from_state text, to_state text, PRIMARY KEY (intent_id, id));
CREATE TABLE bench_floor.events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), intent_id uuid NOT NULL, type text NOT NULL, payload jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now());
"""
ACCEPT = """
WITH k AS (INSERT INTO bench_floor.idempotency_keys
             VALUES ('bench', 'bench.floor', %(key)s, %(fingerprint)s, 'in_progress', %(intent)s, NULL, NULL, NULL,
                     now(), NULL, now() + interval '3 days') ON CONFLICT DO NOTHING RETURNING intent_id),
     i AS (INSERT INTO bench_floor.intents (id, tenant_id, operation, idempotency_key, state, params)
             SELECT intent_id, 'bench', 'bench.floor', %(key)s, 'in_progress', %(params)s FROM k),
     o AS (INSERT INTO bench_floor.outbox (id, intent_id, tenant_id, operation, idempotency_key, provider, provider_key,
                                           status, available_at)
             SELECT %(row)s, intent_id, 'bench', 'bench.floor', %(key)s, 'floor', %(provider_key)s, 'pending', now()
               FROM k),
     r AS (INSERT INTO bench_floor.requests
             SELECT %(row)s, %(provider_key)s, 'POST', '/payments', '{}', %(body)s FROM k)
INSERT INTO bench_floor.evidence (intent_id, outbox_id, kind, to_state)
SELECT intent_id, %(row)s, 'accepted', 'in_progress' FROM k
"""
CLAIM = """
UPDATE bench_floor.outbox o
   SET status = 'claimed', attempt = attempt + 1, claim_token = %(token)s, claimed_until = now() + interval '1 minute'
  FROM bench_floor.requests r
 WHERE o.id = ANY (ARRAY(SELECT id FROM bench_floor.outbox WHERE status = 'pending' AND available_at <= now()
                          ORDER BY available_at, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)) AND r.outbox_id = o.id
RETURNING o.id, o.attempt, r.body
"""
END = """
WITH ended AS (DELETE FROM bench_floor.outbox o
                USING unnest(%(rows)s::uuid[], %(attempts)s::int[], %(references)s::text[]) u (id, attempt, reference)
                WHERE o.id = u.id AND o.attempt = u.attempt AND o.claim_token = %(token)s
            RETURNING o.id, o.intent_id, o.tenant_id, o.operation, o.idempotency_key, u.attempt, u.reference),
     i AS (UPDATE bench_floor.intents i
              SET state = 'completed', outcome = 'succeeded', provider_reference = e.reference, settled_at = now()
             FROM ended e WHERE i.id = e.intent_id),
     k AS (UPDATE bench_floor.idempotency_keys k
              SET state = 'completed', response_status = 201, response_headers = '{}', response_body = '{}',
                  completed_at = now()
             FROM ended e WHERE (k.tenant_id, k.operation, k.idempotency_key)
                              = (e.tenant_id, e.operation, e.idempotency_key)),
     v AS (INSERT INTO bench_floor.evidence (intent_id, outbox_id, attempt, token, kind, outcome, from_state, to_state)
             SELECT intent_id, id, attempt, %(token)s, 'call', 'succeeded', 'in_progress', 'completed' FROM ended),
     w AS (INSERT INTO bench_floor.events (intent_id, type, payload)
             SELECT intent_id, 'completed', jsonb_build_object('reference', reference) FROM ended)
SELECT count(*) FROM ended
"""


async def connected() -> AsyncConnection[Any]:
    """A session of a program that knows what it does: one plan for each statement."""
    connection = await AsyncConnection.connect(
        os.environ["IDEM_DATABASE_URL"], autocommit=True, application_name="idem bench floor", prepare_threshold=0
    )
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    return connection


async def accept(connection: AsyncConnection[Any], numbers: range) -> None:
    """Accept these, a transaction each."""
    for number in numbers:
        await connection.execute(
            ACCEPT,
            {
                "key": f"floor-{number}",
                "fingerprint": f"v1:{number:064x}",
                "intent": uuid4(),
                "row": uuid4(),
                "provider_key": uuid4(),
                "params": f'{{"amount": {100 + number % 900}, "order": "order-{number}"}}',
                "body": b'{"amount":100,"order":"order-%d"}' % number,
            },
        )


async def drain(connection: AsyncConnection[Any]) -> int:
    """Claim and end until nothing is left; returns how many."""
    ended = 0
    while True:
        token = uuid4()
        claimed = await (await connection.execute(CLAIM, {"token": token, "batch": BATCH})).fetchall()
        if not claimed:
            return ended
        rows, attempts, _ = zip(*claimed, strict=True)
        values = {"token": token, "rows": list(rows), "attempts": list(attempts), "references": [*map(str, rows)]}
        await connection.execute(END, values)
        ended += len(rows)


async def run(order: dict[str, Any]) -> None:
    """`work` is accept or drain; `numbers` are those to accept, from and to."""
    connections = [await connected() for _ in range(order["connections"])]
    try:
        await asyncio.to_thread(job.ready)
        began, cpu = time.monotonic(), time.process_time()
        if order["work"] == "accept":
            first, last = order["numbers"]
            size = len(connections)
            lanes = (range(first + each, last, size) for each in range(size))
            await asyncio.gather(*map(accept, connections, lanes))
        else:
            await drain(connections[0])
        job.done(seconds=time.monotonic() - began, cpu=time.process_time() - cpu)
    finally:
        for connection in connections:
            await connection.close()


if __name__ == "__main__":
    asyncio.run(run(job.order()))
