"""Whether there is anything for the kinds of retention that are looked for often: one statement for all of them."""

from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from idem.sweeper.tenant_counts import USAGE_RETENTION

# Each part goes by the index that its kind goes by, in its order, and reads one row: of those that must stay too.
DUE_RETENTION = """
SELECT (SELECT k.intent_id FROM idem.idempotency_keys k
         WHERE k.expires_at <= statement_timestamp()
         ORDER BY k.expires_at, k.intent_id LIMIT 1) IS NOT NULL AS "keys",
       (SELECT y.webhook_event_id FROM idem.webhook_bodies y
         WHERE y.webhook_event_id < idem.first_uuid7(statement_timestamp() - make_interval(secs => %(bodies)s))
         ORDER BY y.webhook_event_id LIMIT 1) IS NOT NULL AS "webhook bodies",
       (SELECT w.id FROM idem.webhook_events w
         WHERE w.id < idem.first_uuid7(statement_timestamp() - make_interval(secs => %(events)s))
         ORDER BY w.id LIMIT 1) IS NOT NULL AS "webhook events",
       (SELECT a.at FROM idem.provider_answers a WHERE a.at < statement_timestamp() - make_interval(secs => %(answers)s)
         ORDER BY a.at LIMIT 1) IS NOT NULL AS "provider answers",
       (SELECT d.id FROM idem.daemons d
         WHERE greatest(d.seen_at, d.ended_at) < statement_timestamp() - make_interval(secs => %(daemons)s)
         ORDER BY d.id LIMIT 1) IS NOT NULL AS "daemons",
       t.counted AS "tenants",
       (SELECT c.id FROM idem.decisions_to_count c ORDER BY c.id LIMIT 1) IS NOT NULL AS "tenants' decisions",
       (SELECT u.hour FROM idem.tenant_usage u WHERE u.hour < statement_timestamp() - make_interval(secs => %(usage)s)
         ORDER BY u.hour LIMIT 1) IS NOT NULL AS "tenants' hours",
       t.counted AS "tenants' counts"
  FROM (SELECT (SELECT k.tenant_id FROM idem.tenant_keys k ORDER BY k.tenant_id LIMIT 1) IS NOT NULL AS counted) AS t
"""


async def due_retention(
    connection: AsyncConnection[Any], *, bodies: float, events: float, answers: float, daemons: float
) -> frozenset[str]:
    """The kinds that may find something, by their names. Of webhook bodies, webhook events, providers' answers and
    daemons: for how many seconds they are kept."""
    ages = {"bodies": bodies, "events": events, "answers": answers, "daemons": daemons, "usage": USAGE_RETENTION}
    cursor = connection.cursor(row_factory=tuple_row)
    found = await (await cursor.execute(DUE_RETENTION, ages)).fetchone()
    assert found is not None and cursor.description is not None
    return frozenset(column.name for column, is_there in zip(cursor.description, found, strict=True) if is_there)
