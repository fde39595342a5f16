"""Queues of many tenants, made past the triggers in one statement each, and claims of them as a worker makes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
from fix_spine import Spine
from psycopg import AsyncConnection

from idem.outbox.domain.lane_names import LaneName, lane_names
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claimed
from idem.outbox.worker.fairness import Turns

PLANT = """
WITH n AS MATERIALIZED (
    SELECT n, gen_random_uuid() AS intent, gen_random_uuid() AS row, gen_random_uuid() AS key,
           coalesce(%(tenant)s, 'tenant ' || lpad(n::text, 6, '0')) AS tenant
      FROM generate_series(1, %(rows)s::integer) AS n
), wanted AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, params, requested_at)
    SELECT intent, tenant, 'pay.keyed', intent, 'keyed', 'keyed', '{}', statement_timestamp() FROM n
), keys AS (
    INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at)
    SELECT tenant, 'pay.keyed', intent, 'v1:0', intent, statement_timestamp() + interval '1 day' FROM n
), frozen AS (
    INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
    SELECT row, intent, key, 'keyed', 'keyed', 'POST', '/payments',
           jsonb_build_object('content-type', 'application/json', 'idempotency-key', key),
           '{"amount": 100, "currency": "eur"}' FROM n
)
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status, operation,
                         provider, account, origin, tenant_id, replay_window)
SELECT row, intent, statement_timestamp() + make_interval(secs => %(due_in)s::float8 + n * 0.001),
       statement_timestamp() + interval '1 day', statement_timestamp(), key, %(status)s, 'pay.keyed', 'keyed', 'keyed',
       %(origin)s, tenant, 3600 FROM n
"""


def plant(
    url: str, rows: int, *, tenant: str | None = None, due_in: float = -3600, status: str = "pending", origin: str = "o"
) -> None:
    """`rows` rows of one tenant, or of a tenant each, a millisecond apart, the first due in so many seconds."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        values = {"rows": rows, "tenant": tenant, "due_in": due_in, "status": status, "origin": origin}
        connection.execute(PLANT, values)


def lane(spine: Spine) -> LaneName:
    """The lane of `pay.keyed`; what is planted for it needs `origin=spine.bank.url`."""
    return lane_names(spine.catalogue)["keyed", "keyed"][0]


async def grab(
    connection: AsyncConnection[Any], name: LaneName, limit: int, turns: Turns | None = None
) -> list[Claimed]:
    """One claim."""
    return await claims.claim(
        connection, name, token=uuid4(), holder="test", lease=60, limit=limit, now=clock.boottime(), turns=turns
    )


async def tenants(connection: AsyncConnection[Any], rows: list[Claimed]) -> list[str]:
    """Whose rows these are."""
    found = await connection.execute(
        "SELECT tenant_id FROM idem.outbox WHERE id = ANY (%s) ORDER BY array_position(%s::uuid[], id)",
        [ids(rows), ids(rows)],
    )
    return [tenant for (tenant,) in await found.fetchall()]


def ids(rows: list[Claimed]) -> list[UUID]:
    """Their ids."""
    return [claimed.row.id for claimed in rows]
