"""A tenant's intents by a provider key, by the provider's reference, by label, or of a time: each by an index, of this
tenant alone.

A reference or a label may belong to very many intents, and no index has what else is asked for. So a page looks at the
next `SCANNED` of them by the index, and says where it has stopped.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.api import intents as ledger
from idem.outbox.api.intents import LISTED
from idem.outbox.operator.search import span

SCANNED: Final = 5000
"""Intents of one reference or one label that a page scans. At least the largest page."""

# A range over all columns of the index, as in `ledger.INTENTS`: with any statistics it is read by this index, in its
# order. What is looked at is filtered afterwards.
BY_REFERENCE = """
WITH looked AS MATERIALIZED (
    SELECT m.id, m.state, m.operation, m.label FROM idem.intents m
     WHERE (m.provider_reference, m.tenant_id, m.id) >= (%(reference)s, %(tenant)s, %(low)s::uuid)
       AND (m.provider_reference, m.tenant_id, m.id) < (%(reference)s, %(tenant)s, %(before)s)
       AND m.provider_reference IS NOT NULL
     ORDER BY m.provider_reference DESC, m.tenant_id DESC, m.id DESC LIMIT %(scanned)s
)
SELECT ARRAY(SELECT l.id FROM looked l
              WHERE CASE WHEN %(label)s::text IS NULL THEN true ELSE coalesce(l.label = %(label)s, false) END
                AND CASE WHEN %(state)s::text IS NULL THEN true ELSE l.state = %(state)s END
                AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE l.operation = %(operation)s END
              ORDER BY l.id DESC LIMIT %(limit)s) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) = %(scanned)s THEN (SELECT l.id FROM looked l ORDER BY l.id LIMIT 1) END
           AS stopped_at
"""
BY_LABEL = """
WITH looked AS MATERIALIZED (
    SELECT m.id, m.state, m.operation, m.label FROM idem.intents m
     WHERE (left(m.label, 200), m.tenant_id, m.id) >= (left(%(label)s::text, 200), %(tenant)s, %(low)s::uuid)
       AND (left(m.label, 200), m.tenant_id, m.id) < (left(%(label)s::text, 200), %(tenant)s, %(before)s)
       AND m.label IS NOT NULL
     ORDER BY left(m.label, 200) DESC, m.tenant_id DESC, m.id DESC LIMIT %(scanned)s
)
SELECT ARRAY(SELECT l.id FROM looked l
              WHERE l.label = %(label)s
                AND CASE WHEN %(state)s::text IS NULL THEN true ELSE l.state = %(state)s END
                AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE l.operation = %(operation)s END
              ORDER BY l.id DESC LIMIT %(limit)s) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) = %(scanned)s THEN (SELECT l.id FROM looked l ORDER BY l.id LIMIT 1) END
           AS stopped_at
"""
# A provider key belongs to one call, earlier generations included; a producer may write the same one again.
BY_PROVIDER_KEY = """
WITH looked AS MATERIALIZED (
    SELECT r.intent_id AS id FROM idem.requests r WHERE r.provider_key = %(key)s LIMIT %(scanned)s
)
SELECT ARRAY(SELECT m.id FROM idem.intents m
              WHERE m.id IN (SELECT l.id FROM looked l) AND m.tenant_id = %(tenant)s
                AND m.id >= %(low)s::uuid AND m.id < %(before)s
                AND CASE WHEN %(reference)s::text IS NULL THEN true
                         ELSE coalesce(m.provider_reference = %(reference)s, false) END
                AND CASE WHEN %(label)s::text IS NULL THEN true ELSE coalesce(m.label = %(label)s, false) END
                AND CASE WHEN %(state)s::text IS NULL THEN true ELSE m.state = %(state)s END
                AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE m.operation = %(operation)s END
              ORDER BY m.id DESC LIMIT %(limit)s) AS ids,
       NULL::uuid AS stopped_at
"""
FOUND = f"""
SELECT {LISTED}
 WHERE n.id = ANY (%(ids)s)
 ORDER BY n.id DESC
"""


async def intents(
    connection: AsyncConnection[Any],
    tenant: str,
    *,
    provider_key: UUID | None,
    reference: str | None,
    label: str | None,
    since: datetime | None,
    until: datetime | None,
    state: str | None = None,
    operation: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of those that all of this is true of, newest first, and the `before` of the next page.

    A page may have fewer than `limit`, and a next one all the same. None: there is no next page.
    """
    low, high = span(since, until)
    before = min(before or ledger.NEWEST, high)
    if provider_key is None and reference is None and label is None:
        page = await ledger.intents(
            connection, tenant, state=state, operation=operation, low=low, before=before, limit=limit
        )
        return page, page[-1]["id"] if len(page) == limit else None
    parameters = {
        "tenant": tenant, "key": provider_key, "reference": reference, "label": label, "state": state,
        "operation": operation, "low": low, "before": before, "scanned": SCANNED, "limit": limit,
    }  # fmt: skip
    cursor = connection.cursor(row_factory=dict_row)
    query = BY_LABEL if reference is None else BY_REFERENCE
    if provider_key is not None:
        query = BY_PROVIDER_KEY
    [looked] = await (await cursor.execute(query, parameters)).fetchall()
    ids, stopped_at = looked["ids"], looked["stopped_at"]
    if len(ids) == limit:
        stopped_at = ids[-1]
    found = await (await cursor.execute(FOUND, {"ids": ids})).fetchall()
    return [ledger.summary(row) for row in found], None if stopped_at is None else str(stopped_at)
