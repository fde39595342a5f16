"""Counts what each tenant does with its keys, per hour: in a table, because metrics with tenant labels would grow
without limit."""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

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

_COUNTS: Final = ", ".join(TenantCounter)
_TYPED: Final = ", ".join(f"{each} bigint" for each in TenantCounter)
_ADDED: Final = ", ".join(f"{each} = u.{each} + excluded.{each}" for each in TenantCounter)
# In the order of tenants, so that two processes that flush at once never wait for each other crosswise. A count that
# another session holds is left out, and holds up no other.
ADD = f"""
WITH hour AS MATERIALIZED (
    SELECT date_trunc('hour', statement_timestamp(), 'UTC') AS at
), free AS MATERIALIZED (
    SELECT o.tenant_id FROM idem.tenant_usage o
     WHERE o.tenant_id = ANY (%(tenants)s) AND o.hour = (SELECT at FROM hour)
     ORDER BY o.tenant_id FOR NO KEY UPDATE SKIP LOCKED
)
INSERT INTO idem.tenant_usage AS u (tenant_id, hour, {_COUNTS})
SELECT c.tenant_id, (SELECT at FROM hour), {", ".join(f"coalesce(c.{each}, 0)" for each in TenantCounter)}
  FROM jsonb_to_recordset(%(counts)s::jsonb) AS c (tenant_id text, {_TYPED})
 WHERE c.tenant_id = ANY (ARRAY(SELECT f.tenant_id FROM free f))
    OR NOT EXISTS (SELECT FROM idem.tenant_usage o WHERE o.tenant_id = c.tenant_id AND o.hour = (SELECT at FROM hour))
 ORDER BY c.tenant_id COLLATE "C"
    ON CONFLICT (tenant_id, hour) DO UPDATE SET {_ADDED}
RETURNING u.tenant_id
"""  # noqa: S608


async def add(connection: AsyncConnection[Any], counts: Mapping[str, Mapping[TenantCounter, int]]) -> set[str]:
    """Add counts of some tenants to those of this hour in one statement; returns the tenants whose counts were added.

    Those of the others are held by another session: add them again later.
    """
    found = [{"tenant_id": tenant} | {what.value: n for what, n in each.items()} for tenant, each in counts.items()]
    added = await connection.execute(ADD, {"counts": json.dumps(found), "tenants": list(counts)})
    return {record[0] for record in await added.fetchall()}


_MISUSE: Final = [each for each in TenantCounter if each not in ("requests", "created", "replayed")]
TOP = f"""
WITH used AS (
    SELECT u.tenant_id, {", ".join(f"sum(u.{each})::bigint AS {each}" for each in TenantCounter)}
      FROM idem.tenant_usage u
     WHERE u.hour >= date_trunc('hour', %(since)s::timestamptz, 'UTC')
     GROUP BY u.tenant_id
), summed AS (
    SELECT s.*, {" + ".join(f"s.{each}" for each in _MISUSE)} AS misuse FROM used s
)
SELECT m.* FROM summed m
 WHERE (to_jsonb(m) ->> %(by)s)::bigint > 0
 ORDER BY (to_jsonb(m) ->> %(by)s)::bigint DESC, m.tenant_id
 LIMIT %(limit)s
"""  # noqa: S608


async def top(
    connection: AsyncConnection[Any], *, since: datetime, by: UsageOrder = "misuse", limit: int = 20
) -> list[dict[str, Any]]:
    """The tenants with the highest counts since the start of an hour, without those at zero."""
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(TOP, {"since": since, "by": str(by), "limit": limit})).fetchall()
