"""How old the oldest of everything unsettled is, and when each daemon was last seen (promise P5). Read-only."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox import telemetry
from idem.outbox.listing import Record
from idem.outbox.telemetry import Unsettled

INSTALLATION = """
SELECT i.environment, current_database()::text AS database, i.created_at, statement_timestamp() AS now
  FROM idem.installation i
"""
# A paused lane grows old on purpose: it is told apart, so that it neither hides nor imitates a fault.
OUTBOX = """
SELECT o.status, coalesce(l.paused, false) AS paused, count(*) AS rows,
       extract(epoch FROM statement_timestamp() - min(o.status_since))::float8 AS oldest,
       greatest(0, extract(epoch FROM statement_timestamp() - min(o.available_at)))::float8 AS overdue,
       min(extract(epoch FROM o.first_sent_at - statement_timestamp())::float8 + o.replay_window)
           FILTER (WHERE o.status = 'unknown' AND o.replay_window > 0) AS replay_window_left
  FROM idem.outbox o LEFT JOIN idem.lanes l ON l.provider = o.provider AND l.account = o.account
 GROUP BY o.status, coalesce(l.paused, false) ORDER BY o.status, 2
"""
PROOFS = """
SELECT count(*) AS rows, extract(epoch FROM statement_timestamp() - min(p.stored_at))::float8 AS oldest
  FROM idem.proofs p
"""
LETTERS = """
SELECT d.reason, count(*) AS rows, extract(epoch FROM statement_timestamp() - min(d.created_at))::float8 AS oldest
  FROM idem.dead_letters d WHERE d.resolved_at IS NULL GROUP BY d.reason ORDER BY d.reason
"""
# Those that live or died without a word, and of each kind the last that ended cleanly.
DAEMONS = """
WITH last AS (SELECT DISTINCT ON (kind) id FROM idem.daemons ORDER BY kind, seen_at DESC)
SELECT d.kind, d.id, d.host, d.pid, d.started_at, d.seen_at, d.passed_at, d.ended_at, d.ended_how,
       extract(epoch FROM statement_timestamp() - d.seen_at)::float8 AS seen,
       extract(epoch FROM statement_timestamp() - d.passed_at)::float8 AS passed,
       CASE WHEN d.ended_at IS NOT NULL THEN 'ended'
            WHEN d.seen_at < statement_timestamp() - make_interval(secs => %(silent)s) THEN 'silent'
            ELSE 'alive' END AS life
  FROM idem.daemons d
 WHERE d.id IN (SELECT id FROM last)
    OR (d.ended_at IS NULL AND d.seen_at > statement_timestamp() - interval '1 day')
 ORDER BY d.kind, d.seen_at DESC
"""
PAUSED = """
SELECT l.provider, l.account, l.paused_by, l.reason, l.changed_at,
       extract(epoch FROM statement_timestamp() - l.changed_at)::float8 AS age
  FROM idem.lanes l WHERE l.paused ORDER BY l.provider, l.account
"""
# Of each handler the first ten thousand: ids of intents are in the order of time, so the oldest are among them.
HANDLERS = """
SELECT h.name AS handler, h.operation, count(w.number)::integer AS events, count(w.letter_id)::integer AS stopped,
       coalesce(extract(epoch FROM statement_timestamp() - min(w.created_at)), 0)::float8 AS oldest,
       coalesce(extract(epoch FROM statement_timestamp() - min(w.created_at) FILTER (WHERE w.letter_id IS NULL)),
                0)::float8 AS oldest_going,
       extract(epoch FROM statement_timestamp() - h.seen_at)::float8 AS seen
  FROM idem.event_handlers h
  LEFT JOIN LATERAL (SELECT k.number, k.letter_id, k.created_at FROM idem.handler_work k WHERE k.handler = h.name
                      ORDER BY k.handler, k.intent_id, k.number LIMIT 10000) AS w ON true
 GROUP BY h.name ORDER BY h.name
"""

SILENT = 30.0
"""Seconds without a sign of life (one is due every 5) after which a daemon counts as silent."""


async def ages(connection: AsyncConnection[Any]) -> Record:
    """Everything at once, in one snapshot: rows by status, stored proofs, open dead letters, daemons, paused lanes."""

    async def all(query: str) -> list[Record]:
        cursor = connection.cursor(row_factory=dict_row)
        return await (await cursor.execute(query, {"silent": SILENT})).fetchall()

    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return {
            "installation": next(iter(await all(INSTALLATION)), None),
            "outbox": await all(OUTBOX),
            "proofs": (await all(PROOFS))[0],
            "dead_letters": await all(LETTERS),
            "daemons": await all(DAEMONS),
            "paused": await all(PAUSED),
            "handlers": await all(HANDLERS),
        }


async def report(connection: AsyncConnection[Any]) -> None:
    """Set the gauges of what is unsettled. A paused lane is told apart."""
    found = await ages(connection)
    kinds: dict[str, Unsettled] = {}
    paused: dict[str, Unsettled] = {}
    for row in found["outbox"]:
        of = paused if row["paused"] else kinds
        of[row["status"]] = Unsettled(row["rows"], row["oldest"] or 0.0, row["overdue"] or 0.0)
    letters = found["dead_letters"]
    kinds["proof"] = Unsettled(found["proofs"]["rows"], found["proofs"]["oldest"] or 0.0)
    kinds["dead_letter"] = Unsettled(
        sum(letter["rows"] for letter in letters), max((letter["oldest"] or 0.0 for letter in letters), default=0.0)
    )
    windows = [row["replay_window_left"] for row in found["outbox"] if row["replay_window_left"] is not None]
    open_letters = {letter["reason"]: letter["rows"] for letter in letters}
    telemetry.aged(kinds, paused, open_letters, min(windows, default=None))
    telemetry.handlers_wait({each["handler"]: (each["events"], each["oldest"]) for each in found["handlers"]})
