"""A tenant's intents by a provider key, by the provider's reference, by label, or of a time: each by an index, of this
tenant alone.

A reference or a label may belong to very many intents, and no index has what else is asked for. So a page looks at the
next `SCANNED` of them by the index, and says where it has stopped.
"""

from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.api import intents as ledger
from idem.outbox.api.intents import listed
from idem.outbox.operator.search import span

SCANNED: Final = 5000
"""Intents of one reference or one label that a page scans. At least the largest page."""


def _filters(row: LiteralString) -> LiteralString:
    return f"""
                AND CASE WHEN %(label)s::text IS NULL THEN true ELSE coalesce({row}.label = %(label)s, false) END
                AND CASE WHEN %(state)s::text IS NULL THEN true ELSE {row}.state = %(state)s END
                AND CASE WHEN %(operation)s::text IS NULL THEN true ELSE {row}.operation = %(operation)s END"""


def _by(column: LiteralString, indexed: LiteralString, value: LiteralString) -> LiteralString:
    # A range over all columns of the index, as in `ledger.INTENTS`: with any statistics it is read by this index, in
    # its order. What is looked at is filtered afterwards.
    return f"""
WITH looked AS MATERIALIZED (
    SELECT m.id, m.state, m.operation, m.label FROM idem.intents m
     WHERE ({indexed}, m.tenant_id, m.id) >= ({value}, %(tenant)s, %(low)s::uuid)
       AND ({indexed}, m.tenant_id, m.id) < ({value}, %(tenant)s, %(before)s)
       AND {column} IS NOT NULL
     ORDER BY {indexed} DESC, m.tenant_id DESC, m.id DESC LIMIT %(scanned)s
)
SELECT ARRAY(SELECT l.id FROM looked l
              WHERE true{_filters("l")}
              ORDER BY l.id DESC LIMIT %(limit)s) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) = %(scanned)s THEN (SELECT l.id FROM looked l ORDER BY l.id LIMIT 1) END
           AS stopped_at
"""  # noqa: S608


BY_REFERENCE = _by("m.provider_reference", "m.provider_reference", "%(reference)s")
# Of flows the steps have the references: those that have ended, and the open one.
BY_REFERENCE_OF_STEP = f"""
WITH looked AS MATERIALIZED (
    (SELECT s.intent_id AS id FROM idem.steps s WHERE s.provider_reference = %(reference)s LIMIT %(scanned)s)
    UNION
    (SELECT o.intent_id FROM idem.outbox o
      WHERE o.step_name IS NOT NULL AND o.provider_reference = %(reference)s LIMIT %(scanned)s)
)
SELECT ARRAY(SELECT m.id
               FROM looked l CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = l.id LIMIT 1) AS m
              WHERE m.tenant_id = %(tenant)s AND m.id >= %(low)s::uuid AND m.id < %(before)s{_filters("m")}
              ORDER BY m.id DESC LIMIT %(limit)s) AS ids,
       NULL::uuid AS stopped_at
"""  # noqa: S608
BY_LABEL = _by("m.label", "left(m.label, 200)", "left(%(label)s::text, 200)")
# A provider key belongs to one call, earlier generations included; a producer may write the same one again.
BY_PROVIDER_KEY = f"""
WITH looked AS MATERIALIZED (
    SELECT r.intent_id AS id FROM idem.requests r WHERE r.provider_key = %(key)s LIMIT %(scanned)s
)
SELECT ARRAY(SELECT m.id
               FROM looked l CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = l.id LIMIT 1) AS m
              WHERE m.tenant_id = %(tenant)s AND m.id >= %(low)s::uuid AND m.id < %(before)s
                AND CASE WHEN %(reference)s::text IS NULL THEN true
                         ELSE coalesce(m.provider_reference = %(reference)s, false)
                              OR m.plan IS NOT NULL AND EXISTS (
                                     SELECT FROM idem.steps s
                                      WHERE s.intent_id = m.id AND s.provider_reference = %(reference)s)
                    END{_filters("m")}
              ORDER BY m.id DESC LIMIT %(limit)s) AS ids,
       NULL::uuid AS stopped_at
"""  # noqa: S608
FOUND = listed("%(ids)s::uuid[]")


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
    """A page of the intents that match every given term, newest first, and the `before` of the next page.

    A page may hold fewer than `limit` intents although a next page exists. None: there is no next page.
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
    if query is BY_REFERENCE:
        [of_steps] = await (await cursor.execute(BY_REFERENCE_OF_STEP, parameters)).fetchall()
        # What lies below the point where this page has stopped is on a later one.
        floor = stopped_at or ledger.OLDEST
        ids = sorted({*ids, *(each for each in of_steps["ids"] if each >= floor)}, reverse=True)[:limit]
    if len(ids) == limit:
        stopped_at = ids[-1]
    found = await (await cursor.execute(FOUND, {"ids": ids})).fetchall()
    return [ledger.summary(row) for row in found], None if stopped_at is None else str(stopped_at)
