"""The queue of events for handlers: which handler runs next for which event. The design is in 0001_handlers.sql."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.handlers.handler import Handler


@dataclass(frozen=True, slots=True)
class WorkItem:
    """An event that a handler has not handled yet."""

    handler: str
    intent: UUID
    number: int

    @property
    def sequence(self) -> tuple[str, UUID]:
        """The events of one handler and intent, which run one at a time in order."""
        return self.handler, self.intent


# A registration that another session holds is there already; it gets its heartbeat next time.
REGISTER = """
WITH again AS (
    UPDATE idem.event_handlers h SET seen_at = statement_timestamp()
     WHERE h.name = ANY (ARRAY(SELECT o.name FROM idem.event_handlers o WHERE o.name = ANY (%(names)s)
                                ORDER BY o.name FOR UPDATE SKIP LOCKED))
)
INSERT INTO idem.event_handlers (name, operation, hears, backfilled_intent, backfilled_number)
SELECT h.name, h.operation, h.hears, CASE WHEN h.first THEN '00000000-0000-0000-0000-000000000000'::uuid END,
       CASE WHEN h.first THEN 0 END
  FROM unnest(%(names)s::text[], %(operations)s::text[], %(hears)s::text[], %(first)s::boolean[])
       AS h (name, operation, hears, first)
 ORDER BY h.name
    ON CONFLICT (name) DO NOTHING
"""
# A statement of its own, after the commit of the registration: a transaction that may not have seen it has an older id.
WALK_AFTER = """
UPDATE idem.event_handlers SET backfill_after = pg_snapshot_xmax(pg_current_snapshot())
 WHERE name = ANY (ARRAY(SELECT o.name FROM idem.event_handlers o
                          WHERE o.name = ANY (%(names)s)
                            AND o.backfilled_intent IS NOT NULL AND o.backfill_after IS NULL
                          ORDER BY o.name FOR UPDATE SKIP LOCKED))
"""


async def register(connection: AsyncConnection[Any], handlers: Iterable[Handler]) -> None:
    """Say that these handlers exist and are run here. Outside a transaction; to be repeated as a heartbeat."""
    known = list(handlers)
    names = [each.name for each in known]
    await connection.execute(
        REGISTER,
        {
            "names": names,
            "operations": [each.operation for each in known],
            "hears": [each.hears for each in known],
            "first": [each.begin == "first" for each in known],
        },
    )
    if any(each.begin == "first" for each in known):
        await connection.execute(WALK_AFTER, {"names": names})


WALK = """
WITH walker AS MATERIALIZED (
    SELECT h.* FROM idem.event_handlers h
     WHERE h.name = ANY(%(names)s) AND h.backfilled_intent IS NOT NULL
       -- A number that is not yet given was written on another server, before this database was restored here.
       AND (h.backfill_after <= pg_snapshot_xmin(pg_current_snapshot())
            OR h.backfill_after > pg_snapshot_xmax(pg_current_snapshot()))
     ORDER BY h.name LIMIT 1 FOR UPDATE SKIP LOCKED
), page AS MATERIALIZED (
    SELECT e.id, e.aggregateid, e.number, e.created_at, e.type
      FROM idem.events e
     WHERE (e.aggregateid, e.number)
           > ((SELECT w.backfilled_intent FROM walker w), (SELECT w.backfilled_number FROM walker w))
     ORDER BY e.aggregateid, e.number LIMIT %(limit)s
), found AS (
    INSERT INTO idem.handler_work (handler, intent_id, number, event_id, created_at)
    SELECT w.name, p.aggregateid, p.number, p.id, p.created_at
      FROM walker w CROSS JOIN page p
     WHERE (SELECT i.operation FROM idem.intents i WHERE i.id = p.aggregateid) = w.operation
       AND (w.hears = 'step') = (p.type = 'step')
       AND (SELECT m.event_id FROM idem.handled_events m
             WHERE m.event_id = p.id AND m.handler = w.name LIMIT 1) IS NULL
        ON CONFLICT DO NOTHING
)
UPDATE idem.event_handlers h
   SET backfilled_intent = CASE WHEN l.pages = %(limit)s THEN l.aggregateid END,
       backfilled_number = CASE WHEN l.pages = %(limit)s THEN l.number END
  FROM walker w LEFT JOIN (
       SELECT p.aggregateid, p.number, count(*) OVER () AS pages FROM page p
        ORDER BY p.aggregateid DESC, p.number DESC LIMIT 1) AS l ON true
 WHERE h.name = w.name
RETURNING h.backfilled_intent IS NOT NULL
"""


async def walk(connection: AsyncConnection[Any], names: list[str], *, limit: int = 500) -> bool:
    """One page of the events before one of these handlers was registered; whether there is more of it now."""
    walked = await (await connection.execute(WALK, {"names": names, "limit": limit})).fetchone()
    return walked is not None


EXPAND = """
WITH gone AS (
    DELETE FROM idem.handler_work w
     WHERE w.ctid = ANY (ARRAY(
               SELECT o.ctid FROM idem.handler_work o WHERE o.handler = '*'
                ORDER BY o.intent_id, o.number LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED))
    RETURNING w.intent_id, w.number, w.event_id, w.created_at
), given AS (
    INSERT INTO idem.handler_work (handler, intent_id, number, event_id, created_at)
    SELECT h.name, g.intent_id, g.number, g.event_id, g.created_at
      FROM gone g
     CROSS JOIN LATERAL (SELECT n.operation FROM idem.intents n WHERE n.id = g.intent_id LIMIT 1) AS i
      JOIN idem.events e ON e.aggregateid = ANY (ARRAY[g.intent_id]) AND e.number = g.number
      JOIN idem.event_handlers h ON h.operation = i.operation AND (h.hears = 'step') = (e.type = 'step')
     WHERE (SELECT m.event_id FROM idem.handled_events m
             WHERE m.event_id = g.event_id AND m.handler = h.name LIMIT 1) IS NULL
        ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
"""


async def expand(connection: AsyncConnection[Any], *, limit: int = 500) -> int:
    """Give events whose transaction may not have seen every handler to those it missed; how many were looked at.

    To be run wherever a worker runs, with handlers or without: nothing else takes these rows away.
    """
    found = await (await connection.execute(EXPAND, {"limit": limit})).fetchone()
    return int(found[0]) if found else 0


FIND = """
SELECT w.handler, w.intent_id, w.number
  FROM unnest(%(names)s::text[], %(limits)s::integer[]) AS h (name, most)
 CROSS JOIN LATERAL (
       SELECT k.handler, k.intent_id, k.number
         FROM idem.handler_work k
        WHERE k.handler = h.name AND k.due_at <= statement_timestamp()
          AND (SELECT b.number FROM idem.handler_work b
                WHERE (b.handler, b.intent_id) = (h.name, k.intent_id) AND b.number < k.number
                ORDER BY b.handler, b.intent_id, b.number LIMIT 1) IS NULL
          AND (SELECT b.number FROM idem.handler_work b
                WHERE (b.handler, b.intent_id) = ('*', k.intent_id) AND b.number < k.number
                ORDER BY b.handler, b.intent_id, b.number LIMIT 1) IS NULL
          AND NOT EXISTS (SELECT FROM idem.event_handlers r
                           WHERE r.name = h.name AND r.backfilled_intent <= k.intent_id)
        ORDER BY k.due_at LIMIT h.most FOR UPDATE OF k SKIP LOCKED) AS w
"""


async def find(connection: AsyncConnection[Any], limits: Mapping[str, int]) -> list[WorkItem]:
    """The next events: for each handler at most so many, none that runs now. Leaves nothing locked."""
    if not limits:
        return []
    cursor = records(connection)
    await cursor.execute(FIND, {"names": list(limits), "limits": list(limits.values())})
    return [WorkItem(row.handler, row.intent_id, row.number) for row in await cursor.fetchall()]
