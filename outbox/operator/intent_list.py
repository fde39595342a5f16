"""The list of intents for operators: each filter is a filter of what is shown, and the step has an index of its own."""

import json
from typing import Any, Unpack
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.operator import search
from idem.outbox.operator.listing import EntryFilters, Record


class IntentFilters(EntryFilters, total=False):
    """`EntryFilters` for intents. `before` is the last id of the page before; `step` the name of a flow's open step."""

    tenant: str | None
    state: str | None
    status: str | None
    operation: str | None
    key: str | None
    step: str | None
    before: UUID | None


_LISTED = """
SELECT n.id, n.tenant_id, n.operation, n.idempotency_key, n.state, n.outcome, o.status, o.step_name AS step,
       coalesce(n.provider, o.provider) AS provider, coalesce(n.account, o.account) AS account,
       n.provider_reference, n.label, n.version, n.asked_by, n.created_at, n.settled_at,
       extract(epoch FROM statement_timestamp() - n.created_at)::float8 AS age,
       extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS status_age"""
# A flow goes to every provider of its plan.
_FILTERED = """(%(tenant)s::text IS NULL OR n.tenant_id = %(tenant)s)
   AND (%(state)s::text IS NULL OR n.state = %(state)s)
   AND (%(status)s::text IS NULL OR o.status = %(status)s)
   AND (%(operation)s::text IS NULL OR n.operation = %(operation)s)
   AND (%(provider)s::text IS NULL OR n.provider = %(provider)s OR n.plan @> %(served)s::jsonb)
   AND (%(key)s::text IS NULL OR n.idempotency_key = %(key)s)
   AND (%(account)s::text IS NULL OR n.account = %(account)s OR n.plan @> %(served)s::jsonb)
   AND (%(label)s::text IS NULL OR left(n.label, 200) = left(%(label)s, 200) AND n.label = %(label)s)
   AND (%(reference)s::text IS NULL OR n.id = ANY (ARRAY(
           SELECT m.id FROM idem.intents m WHERE m.provider_reference = %(reference)s
            UNION ALL
           SELECT s.intent_id FROM idem.steps s WHERE s.provider_reference = %(reference)s
            UNION ALL
           SELECT w.intent_id FROM idem.outbox w
            WHERE w.step_name IS NOT NULL AND w.provider_reference = %(reference)s)))
   AND (%(since)s::timestamptz IS NULL OR n.created_at >= %(since)s AND n.id >= %(low)s)
   AND (%(until)s::timestamptz IS NULL OR n.created_at < %(until)s AND n.id <= %(high)s)"""
INTENTS = f"""{_LISTED}
  FROM idem.intents n LEFT JOIN idem.outbox o ON o.intent_id = ANY (ARRAY[n.id])
 WHERE {_FILTERED}
   AND (%(before)s::uuid IS NULL OR n.id < %(before)s)
   -- An intent that is not completed has an open row, so the few are found without a scan of the whole ledger.
   AND (%(state)s::text IS NULL OR %(state)s = 'completed' OR n.id IN (SELECT w.intent_id FROM idem.outbox w))
   AND (%(status)s::text IS NULL OR n.id IN (SELECT w.intent_id FROM idem.outbox w WHERE w.status = %(status)s))
 ORDER BY n.id DESC LIMIT %(limit)s
"""  # noqa: S608
# A range over all columns of outbox_steps_by_name, in its order: a page reads what it shows, however many wait there.
INTENTS_AT_STEP = f"""{_LISTED}
  FROM idem.outbox o CROSS JOIN LATERAL (SELECT i.* FROM idem.intents i WHERE i.id = o.intent_id LIMIT 1) AS n
 WHERE o.step_name || '' IS NOT NULL
   AND (o.step_name, o.intent_id) >= (%(step)s, %(first)s::uuid)
   AND (o.step_name, o.intent_id) < (%(step)s, %(last)s::uuid)
   AND {_FILTERED}
 ORDER BY o.step_name DESC, o.intent_id DESC LIMIT %(limit)s
"""  # noqa: S608


async def intents(connection: AsyncConnection[Any], **filters: Unpack[IntentFilters]) -> list[Record]:
    """Intents, newest first. Ids are in the order of time."""
    bounds = search.bounds(filters.get("since"), filters.get("until"))
    place = {name: filters.get(name) for name in ("provider", "account")}
    served = json.dumps([{name: value for name, value in place.items() if value is not None}])
    wanted: dict[str, Any] = {**dict.fromkeys(IntentFilters.__annotations__), "limit": 100, **filters, **bounds}
    wanted |= {"served": served, "first": bounds["low"], "last": min(wanted["before"] or search.NEWEST, bounds["high"])}
    cursor = connection.cursor(row_factory=dict_row)
    query = INTENTS if wanted["step"] is None else INTENTS_AT_STEP
    return await (await cursor.execute(query, wanted)).fetchall()
