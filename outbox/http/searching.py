"""A tenant's intents by the provider's reference, by label, or of a time: each by an index, of this tenant alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.http.ledger import NEWEST, told
from idem.outbox.operators.finding import bounds

BY_REFERENCE = """
SELECT m.id FROM idem.intents m
 WHERE m.provider_reference = %(reference)s AND m.tenant_id = %(tenant)s AND m.id >= %(low)s AND m.id < %(before)s
   AND CASE WHEN %(label)s::text IS NULL THEN true ELSE coalesce(m.label = %(label)s, false) END
   AND CASE WHEN %(state)s::text IS NULL THEN true ELSE m.state = %(state)s END
   AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE m.operation = %(operation)s END
   AND CASE WHEN %(since)s::timestamptz IS NULL THEN true ELSE m.created_at >= %(since)s END
   AND CASE WHEN %(until)s::timestamptz IS NULL THEN true ELSE m.created_at < %(until)s END
 ORDER BY m.id DESC LIMIT %(limit)s
"""
BY_LABEL = """
SELECT m.id FROM idem.intents m
 WHERE left(m.label, 200) = left(%(label)s::text, 200) AND m.tenant_id = %(tenant)s AND m.id >= %(low)s
   AND m.id < %(before)s AND m.label = %(label)s
   AND CASE WHEN %(state)s::text IS NULL THEN true ELSE m.state = %(state)s END
   AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE m.operation = %(operation)s END
   AND CASE WHEN %(since)s::timestamptz IS NULL THEN true ELSE m.created_at >= %(since)s END
   AND CASE WHEN %(until)s::timestamptz IS NULL THEN true ELSE m.created_at < %(until)s END
 ORDER BY m.id DESC LIMIT %(limit)s
"""
# A range over two columns, as in `ledger.INTENTS`.
BY_TIME = """
SELECT m.id FROM idem.intents m
 WHERE (m.tenant_id, m.id) >= (%(tenant)s, %(low)s::uuid) AND (m.tenant_id, m.id) < (%(tenant)s, %(before)s)
   AND CASE WHEN %(state)s::text IS NULL THEN true ELSE m.state = %(state)s END
   AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE m.operation = %(operation)s END
   AND CASE WHEN %(since)s::timestamptz IS NULL THEN true ELSE m.created_at >= %(since)s END
   AND CASE WHEN %(until)s::timestamptz IS NULL THEN true ELSE m.created_at < %(until)s END
 ORDER BY m.tenant_id DESC, m.id DESC LIMIT %(limit)s
"""
FOUND = """
SELECT n.id, n.operation, n.idempotency_key, n.state, n.outcome, o.status, n.label, n.provider_reference,
       n.created_at, n.settled_at, k.expires_at
  FROM idem.intents n
  LEFT JOIN idem.outbox o ON o.intent_id = n.id
  LEFT JOIN idem.idempotency_keys k
    ON k.tenant_id = n.tenant_id AND k.operation = n.operation AND k.idempotency_key = n.idempotency_key
   AND k.intent_id = n.id AND k.state <> 'expired'
 WHERE n.id = ANY (%(ids)s)
 ORDER BY n.id DESC
"""


async def intents(
    connection: AsyncConnection[Any],
    tenant: str,
    *,
    reference: str | None,
    label: str | None,
    since: datetime | None,
    until: datetime | None,
    state: str | None = None,
    operation: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """The same as `ledger.intents`, of those that all of this is true of."""
    query = BY_REFERENCE if reference is not None else BY_LABEL if label is not None else BY_TIME
    range_ = bounds(since, until)
    parameters = range_ | {
        "tenant": tenant, "reference": reference, "label": label, "state": state, "operation": operation,
        "before": min(before or NEWEST, range_["high"]), "limit": limit,
    }  # fmt: skip
    cursor = connection.cursor(row_factory=dict_row)
    ids = [row["id"] for row in await (await cursor.execute(query, parameters)).fetchall()]
    return [told(row) for row in await (await cursor.execute(FOUND, {"ids": ids})).fetchall()]
