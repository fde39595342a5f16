"""Counts what each tenant does with its keys, per hour: in a table, because metrics with tenant labels would grow
without limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import dict_row


class TenantCounter(StrEnum):
    """The counts of a tenant. The first three are usage; the others are misuse to discuss with the tenant."""

    REQUESTS = "requests"
    CREATED = "created"
    REPLAYED = "replayed"
    MISMATCH = "mismatch"
    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    SUSPICIOUS_KEY = "suspicious_key"
    EXPIRED_REUSE = "expired_reuse"
    LIMITED = "limited"
    BODY_INVALID = "body_invalid"
    PARAMS_INVALID = "params_invalid"


UsageOrder: TypeAlias = TenantCounter | Literal["misuse"]
"""What tenants are compared by; `misuse` is the sum of all but requests, created and replayed."""

# In the order of tenants, so that two processes that flush at once never wait for each other crosswise. A count that
# another session holds is left out, and holds up no other.
ADD = """
WITH hour AS MATERIALIZED (
    SELECT date_trunc('hour', statement_timestamp(), 'UTC') AS at
), free AS MATERIALIZED (
    SELECT o.tenant_id FROM idem.tenant_usage o
     WHERE o.tenant_id = ANY (%(tenants)s) AND o.hour = (SELECT at FROM hour)
     ORDER BY o.tenant_id FOR NO KEY UPDATE SKIP LOCKED
)
INSERT INTO idem.tenant_usage AS u
       (tenant_id, hour, requests, created, replayed, mismatch, key_missing, key_invalid, suspicious_key,
        expired_reuse, limited, body_invalid, params_invalid)
SELECT c.tenant_id, (SELECT at FROM hour),
       coalesce(c.requests, 0), coalesce(c.created, 0), coalesce(c.replayed, 0), coalesce(c.mismatch, 0),
       coalesce(c.key_missing, 0), coalesce(c.key_invalid, 0), coalesce(c.suspicious_key, 0),
       coalesce(c.expired_reuse, 0), coalesce(c.limited, 0), coalesce(c.body_invalid, 0),
       coalesce(c.params_invalid, 0)
  FROM jsonb_to_recordset(%(counts)s::jsonb) AS c
       (tenant_id text, requests bigint, created bigint, replayed bigint, mismatch bigint, key_missing bigint,
        key_invalid bigint, suspicious_key bigint, expired_reuse bigint, limited bigint, body_invalid bigint,
        params_invalid bigint)
 WHERE c.tenant_id = ANY (ARRAY(SELECT f.tenant_id FROM free f))
    OR NOT EXISTS (SELECT FROM idem.tenant_usage o WHERE o.tenant_id = c.tenant_id AND o.hour = (SELECT at FROM hour))
 ORDER BY c.tenant_id COLLATE "C"
    ON CONFLICT (tenant_id, hour) DO UPDATE
   SET requests       = u.requests + excluded.requests,
       created        = u.created + excluded.created,
       replayed       = u.replayed + excluded.replayed,
       mismatch       = u.mismatch + excluded.mismatch,
       key_missing    = u.key_missing + excluded.key_missing,
       key_invalid    = u.key_invalid + excluded.key_invalid,
       suspicious_key = u.suspicious_key + excluded.suspicious_key,
       expired_reuse  = u.expired_reuse + excluded.expired_reuse,
       limited        = u.limited + excluded.limited,
       body_invalid   = u.body_invalid + excluded.body_invalid,
       params_invalid = u.params_invalid + excluded.params_invalid
RETURNING u.tenant_id
"""


async def add(connection: AsyncConnection[Any], counts: Mapping[str, Mapping[TenantCounter, int]]) -> set[str]:
    """Add counts of some tenants to those of this hour in one statement; returns the tenants whose counts were added.

    Those of the others are held by another session: add them again later.
    """
    found = [{"tenant_id": tenant} | {what.value: n for what, n in each.items()} for tenant, each in counts.items()]
    added = await connection.execute(ADD, {"counts": json.dumps(found), "tenants": list(counts)})
    return {record[0] for record in await added.fetchall()}


TOP = """
WITH used AS (
    SELECT u.tenant_id,
           sum(u.requests)::bigint AS requests, sum(u.created)::bigint AS created,
           sum(u.replayed)::bigint AS replayed, sum(u.mismatch)::bigint AS mismatch,
           sum(u.key_missing)::bigint AS key_missing, sum(u.key_invalid)::bigint AS key_invalid,
           sum(u.suspicious_key)::bigint AS suspicious_key, sum(u.expired_reuse)::bigint AS expired_reuse,
           sum(u.limited)::bigint AS limited, sum(u.body_invalid)::bigint AS body_invalid,
           sum(u.params_invalid)::bigint AS params_invalid
      FROM idem.tenant_usage u
     WHERE u.hour >= date_trunc('hour', %(since)s::timestamptz, 'UTC')
     GROUP BY u.tenant_id
), summed AS (
    SELECT s.*, s.mismatch + s.key_missing + s.key_invalid + s.suspicious_key + s.expired_reuse + s.limited
                + s.body_invalid + s.params_invalid AS misuse
      FROM used s
)
SELECT m.* FROM summed m
 WHERE (to_jsonb(m) ->> %(by)s)::bigint > 0
 ORDER BY (to_jsonb(m) ->> %(by)s)::bigint DESC, m.tenant_id
 LIMIT %(limit)s
"""


async def top(
    connection: AsyncConnection[Any], *, since: datetime, by: UsageOrder = "misuse", limit: int = 20
) -> list[dict[str, Any]]:
    """The tenants with the highest counts since the start of an hour, without those at zero."""
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(TOP, {"since": since, "by": str(by), "limit": limit})).fetchall()
