"""The age of the oldest unsettled entry of each kind, and when each daemon last reported (promise P5). Read-only."""

import json
from collections.abc import Collection, Mapping
from typing import Any, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.observe import telemetry
from idem.outbox.observe.ages import OTHER, LaneAges, LaneLabels, set_gauges
from idem.outbox.operator.listing import Record
from idem.outbox.settle import doubted_rows
from idem.outbox.settle.step_columns import place_of_letter

INSTALLATION = """
SELECT i.environment, current_database()::text AS database, i.created_at, statement_timestamp() AS now
  FROM idem.installation i
"""
# A paused lane ages on purpose, so it is separate: it must neither hide nor look like a fault. Rows that were sent wait
# for look-ups, all others for calls.
OUTBOX = """
SELECT g.status, g.provider, g.account, g.rows,
       EXISTS (SELECT FROM idem.lanes l
                WHERE l.provider = g.provider AND l.account IN (g.account, '')
                  AND CASE WHEN g.status IN ('unknown', 'awaiting') THEN l.lookups_paused ELSE l.paused END) AS paused,
       extract(epoch FROM statement_timestamp() - g.since)::float8 AS oldest,
       CASE WHEN g.due IS NOT NULL
            THEN greatest(0, extract(epoch FROM statement_timestamp() - g.due))::float8 END AS overdue,
       g.replay_window_left
  FROM (SELECT o.status, o.provider, o.account, count(*) AS rows, min(o.status_since) AS since,
               -- A claim of a worker or reconciler is late when its lease has expired; a row that waits or rests is not
               -- due.
               min(CASE WHEN o.claim_token IS NOT NULL THEN o.claimed_until
                        WHEN o.status NOT IN ('approval', 'held', 'waiting') THEN o.available_at END) AS due,
               -- A row that lost commits may have sent may still be sent in the same window (Recovery). A first send
               -- whose time is not known has no window, like a burned key.
               min(nullif(idem.memory_left(o.first_sent_at, o.doubted_since, o.replay_window, s.stated), '-Infinity'))
                   FILTER (WHERE o.status NOT IN ('claimed', 'awaiting') AND NOT o.key_burned
                             AND least(o.replay_window, s.stated) > 0) AS replay_window_left
          FROM idem.outbox o
         CROSS JOIN LATERAL (SELECT (%(stated)s::jsonb ->> o.provider)::float8 AS stated) AS s
         GROUP BY o.status, o.provider, o.account) AS g
 ORDER BY g.status, g.provider, g.account
"""
PROOFS = """
SELECT coalesce(n.provider, o.provider, s.provider) AS provider, coalesce(n.account, o.account, s.account) AS account,
       count(*) AS rows, extract(epoch FROM statement_timestamp() - min(p.stored_at))::float8 AS oldest
  FROM idem.proofs p JOIN idem.intents n ON n.id = ANY (ARRAY[p.intent_id])
  LEFT JOIN idem.outbox o ON o.id = ANY (ARRAY[p.outbox_id])
  LEFT JOIN idem.steps s ON s.outbox_id = ANY (ARRAY[p.outbox_id])
 GROUP BY 1, 2 ORDER BY 1, 2
"""
# The last five minutes, by an index range per lane of intents and of steps; and how many live workers have its breaker
# open.
LANES = """
SELECT l.provider, l.account, d.done / 5.0::float8 AS done_per_minute,
       (SELECT count(*) FROM idem.daemons w
         WHERE w.kind = 'worker' AND w.ended_at IS NULL
           AND w.seen_at > statement_timestamp() - make_interval(secs => %(silent)s)
           AND w.last_pass -> 'breakers' ? (l.provider || '/' || l.account))::integer AS breakers_open
  FROM (SELECT o.provider, o.account FROM idem.operations o UNION SELECT o.provider, o.account FROM idem.outbox o) AS l
 CROSS JOIN LATERAL (
       SELECT count(*)::float8 AS done
         FROM ((SELECT FROM idem.intents n
                 WHERE n.provider = l.provider AND n.account = l.account AND n.state = 'completed'
                   AND n.outcome = 'succeeded' AND n.settled_at > statement_timestamp() - interval '5 min'
                 LIMIT 100000)
                UNION ALL
               (SELECT FROM idem.steps e
                 WHERE e.provider = l.provider AND e.account = l.account AND e.outcome = 'succeeded'
                   AND e.ended_at > statement_timestamp() - interval '5 min'
                 LIMIT 100000)) AS s) AS d
 ORDER BY l.provider, l.account
"""
# What waits by an ordering key, and the keys that are held.
ORDER = """
SELECT extract(epoch FROM statement_timestamp() - (SELECT min(o.status_since) FROM idem.outbox o
                                                    WHERE o.status = 'waiting'))::float8 AS oldest,
       (SELECT count(*) FROM (SELECT FROM idem.order_holds LIMIT 10000) AS h)::integer AS held,
       extract(epoch FROM statement_timestamp() - (SELECT min(h.since) FROM idem.order_holds h))::float8 AS oldest_held
"""
# The age of the oldest is exact; the count stops at ten thousand, because events of other systems may be very many.
UNMATCHED = """
SELECT (SELECT count(*) FROM (SELECT FROM idem.webhook_events l WHERE l.fate = 'unmatched'
                                 AND NOT EXISTS (SELECT FROM idem.dead_letters d
                                                  WHERE d.webhook_event_id = ANY (ARRAY[l.id]))
                               LIMIT 10000) AS w)::integer AS rows,
       extract(epoch FROM statement_timestamp() - min(e.received_at))::float8 AS oldest
  FROM idem.webhook_events e
 WHERE e.fate = 'unmatched'
   AND NOT EXISTS (SELECT FROM idem.dead_letters d WHERE d.webhook_event_id = ANY (ARRAY[e.id]))
"""
DEAD_LETTERS = f"""
SELECT d.reason, coalesce(n.provider, {place_of_letter("provider")}, w.provider, d.details ->> 'provider') AS provider,
       coalesce(n.account, {place_of_letter("account")}, w.account, d.details ->> 'account') AS account,
       count(*) AS rows,
       extract(epoch FROM statement_timestamp() - min(d.created_at))::float8 AS oldest
  FROM idem.dead_letters d
  LEFT JOIN idem.intents n ON n.id = ANY (ARRAY[d.intent_id])
  LEFT JOIN idem.webhook_events w ON w.id = ANY (ARRAY[d.webhook_event_id])
 WHERE d.resolved_at IS NULL
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""  # noqa: S608
# Daemons that live or died without a shutdown message, and of each kind the last that stopped cleanly.
DAEMONS = """
WITH last AS (SELECT DISTINCT ON (kind) id FROM idem.daemons ORDER BY kind, seen_at DESC)
SELECT d.kind, d.id, d.host, d.pid, d.started_at, d.seen_at, d.last_pass_at, d.ended_at, d.ended_how,
       extract(epoch FROM statement_timestamp() - d.seen_at)::float8 AS seen,
       extract(epoch FROM statement_timestamp() - d.last_pass_at)::float8 AS passed,
       -- As of its last heartbeat, the worst first.
       coalesce(d.last_pass -> 'overdue', '[]') AS overdue,
       CASE WHEN d.ended_at IS NOT NULL THEN 'ended'
            WHEN d.seen_at < statement_timestamp() - make_interval(secs => %(silent)s) THEN 'silent'
            ELSE 'alive' END AS life
  FROM idem.daemons d
 WHERE d.id IN (SELECT id FROM last)
    OR (d.ended_at IS NULL AND d.seen_at > statement_timestamp() - interval '1 day')
 ORDER BY d.kind, d.seen_at DESC
"""
# An empty account means all accounts. The history says who paused which part; a pause written without it is in the
# lane.
PAUSED = """
SELECT l.provider, l.account, w.what, coalesce(c.changed_by, l.paused_by) AS paused_by,
       coalesce(c.reason, l.reason) AS reason, coalesce(c.changed_at, l.changed_at) AS changed_at,
       extract(epoch FROM statement_timestamp() - coalesce(c.changed_at, l.changed_at))::float8 AS age
  FROM idem.lanes l
 CROSS JOIN LATERAL (VALUES (1, 'calls', l.paused), (2, 'lookups', l.lookups_paused), (3, 'accept', l.accept_paused))
       AS w (number, what, paused)
  LEFT JOIN LATERAL (SELECT k.paused, k.changed_by, k.reason, k.changed_at FROM idem.lane_changes k
                      WHERE k.provider = l.provider AND k.account = l.account AND k.what = w.what
                      ORDER BY k.id DESC LIMIT 1) AS c ON c.paused
 WHERE w.paused ORDER BY l.provider, l.account, w.number
"""
# The first ten thousand of each handler: ids of intents are in the order of time, so the oldest are among them.
HANDLERS = """
SELECT h.name AS handler, h.operation, count(w.number)::integer AS events, count(w.dead_letter_id)::integer AS stopped,
       (count(*) FILTER (WHERE w.failures > 0 AND w.dead_letter_id IS NULL))::integer AS failing,
       coalesce(extract(epoch FROM statement_timestamp() - min(w.created_at)), 0)::float8 AS oldest,
       coalesce(extract(epoch FROM statement_timestamp() - min(w.created_at) FILTER (WHERE w.dead_letter_id IS NULL)),
                0)::float8 AS oldest_going,
       extract(epoch FROM statement_timestamp() - h.seen_at)::float8 AS seen
  FROM idem.event_handlers h
  LEFT JOIN LATERAL (SELECT k.number, k.dead_letter_id, k.created_at, k.failures
                       FROM idem.handler_work k WHERE k.handler = h.name
                      ORDER BY k.handler, k.intent_id, k.number LIMIT 10000) AS w ON true
 GROUP BY h.name ORDER BY h.name
"""

SILENT = 30.0
"""Seconds without a heartbeat (one is due every 5), after which a daemon counts as silent."""


async def ages(connection: AsyncConnection[Any], stated: Mapping[str, float] | None = None) -> Record:
    """Everything in one snapshot: rows by status, stored proofs and open dead letters, each by provider and account;
    lanes with their rate and breakers, daemons, pauses, handlers.

    `stated`: how many seconds each provider remembers a key by its current contract (`Catalogue.memories`). For a
    provider that is not in it, the time left counts by the contract under which the row was accepted.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return {
            "installation": next(iter(await _all(connection, INSTALLATION)), None),
            **await _unsettled(connection, stated),
            "lanes": await _all(connection, LANES, silent=SILENT),
            "daemons": await _all(connection, DAEMONS, silent=SILENT),
            "paused": await _all(connection, PAUSED),
        }


async def _unsettled(connection: AsyncConnection[Any], stated: Mapping[str, float] | None) -> Record:
    listed = await doubted_rows.waiting(connection)
    return {
        "outbox": await _all(connection, OUTBOX, stated=json.dumps(dict(stated or {}))),
        "proofs": await _all(connection, PROOFS),
        "doubts": {"rows": listed.rows, "oldest": listed.oldest if listed.rows else None},
        "order": (await _all(connection, ORDER))[0],
        "unmatched": (await _all(connection, UNMATCHED))[0],
        "dead_letters": await _all(connection, DEAD_LETTERS),
        "handlers": await _all(connection, HANDLERS),
    }


async def _all(connection: AsyncConnection[Any], query: LiteralString, **values: object) -> list[Record]:
    return await (await connection.cursor(row_factory=dict_row).execute(query, values)).fetchall()


async def report(
    connection: AsyncConnection[Any], lanes: Collection[LaneLabels] = (), stated: Mapping[str, float] | None = None
) -> None:
    """Set the gauges of what is unsettled, each by a statement of its own. A paused lane has its own gauges.

    `lanes` are those of the configuration: each has its series, and all others count as `other`, so that no unknown
    name makes a series. `stated` is as for `ages`.
    """
    found = await _unsettled(connection, stated)
    known = {*lanes, OTHER}
    aged: dict[LaneLabels, LaneAges] = {lane: LaneAges() for lane in known}

    def of(row: Record) -> LaneAges:
        lane = (row["provider"], row["account"])
        return aged[lane if lane in known else OTHER]

    for row in found["outbox"]:
        of(row).add(row["status"], row, paused=row["paused"])
    for row in found["proofs"]:
        of(row).add("proof", row)
    for row in found["dead_letters"]:
        of(row).add("dead_letter", row)
        of(row).letters[row["reason"]] += row["rows"]
    for lane, seen in aged.items():
        set_gauges(lane, seen)
    telemetry.webhooks_wait(found["unmatched"]["rows"], found["unmatched"]["oldest"] or 0.0)
    telemetry.orders_wait(found["order"]["oldest"] or 0.0, found["order"]["held"])
    telemetry.doubts_wait(found["doubts"]["rows"], found["doubts"]["oldest"] or 0.0)
    telemetry.handlers_wait({each["handler"]: (each["events"], each["oldest"]) for each in found["handlers"]})
