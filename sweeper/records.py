"""Removes old records: resolved dead letters, changes of lanes, handlers that no program has any more.

Each is kept as long as evidence, by `installation.evidence_retention`; the triggers of the first two refuse any other
DELETE.
"""

from typing import Any

from psycopg import AsyncConnection

# A discrepancy stays: by its entry the next check knows that a person has decided about this object. So does an entry
# about an event that is still there, which would be told once more, and one of an intent that is not at its end.
DELETE_DEAD_LETTERS = """
DELETE FROM idem.dead_letters l
 WHERE l.ctid = ANY (ARRAY(
           SELECT d.ctid FROM idem.dead_letters d
            WHERE d.resolved_at IS NOT NULL AND d.reason <> 'discrepancy'
              AND d.resolved_at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
              AND (SELECT o.id FROM idem.outbox o WHERE o.intent_id = d.intent_id LIMIT 1) IS NULL
              AND (SELECT w.id FROM idem.webhook_events w WHERE w.id = d.webhook_event_id) IS NULL
              AND (SELECT h.number FROM idem.handler_work h WHERE h.dead_letter_id = d.id LIMIT 1) IS NULL
            ORDER BY d.resolved_at, d.id
            LIMIT %(batch)s
              FOR UPDATE OF d SKIP LOCKED))
"""


async def delete_dead_letters(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Delete up to `batch` dead letters that were resolved before the retention of evidence; how many."""
    return (await connection.execute(DELETE_DEAD_LETTERS, {"batch": batch})).rowcount


# The newest of each thing stays, whatever its age: it says since when and why a lane is paused.
DELETE_LANE_CHANGES = """
DELETE FROM idem.lane_changes l
 WHERE l.id = ANY (ARRAY(
           SELECT c.id FROM idem.lane_changes c
            WHERE c.changed_at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
              AND EXISTS (SELECT FROM idem.lane_changes n
                           WHERE n.provider = c.provider AND n.account = c.account AND n.what = c.what
                             AND n.id > c.id)
            ORDER BY c.id
            LIMIT %(batch)s))
"""


async def delete_lane_changes(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Delete up to `batch` old changes of lanes that a later change has replaced; how many."""
    return (await connection.execute(DELETE_LANE_CHANGES, {"batch": batch})).rowcount


GONE_HANDLERS = """
SELECT h.name FROM idem.event_handlers h
 WHERE h.seen_at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
 ORDER BY h.name
"""
DELETE_WORK = """
DELETE FROM idem.handler_work w
 WHERE w.ctid = ANY (ARRAY(
           SELECT k.ctid FROM idem.handler_work k
            WHERE k.handler = %(handler)s AND k.dead_letter_id IS NULL
            ORDER BY k.intent_id, k.number
            LIMIT %(batch)s
              FOR UPDATE OF k SKIP LOCKED))
"""
FORGET_HANDLER = "SELECT idem.forget_handler(%(handler)s)"


async def forget_handlers(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Drop up to `batch` events that wait for handlers which no program has had for long; how many.

    "For long" is the retention of evidence. When nothing is left, the handler itself is forgotten, and its open dead
    letters are resolved.
    """
    dropped = 0
    for (name,) in await (await connection.execute(GONE_HANDLERS)).fetchall():
        wanted = {"handler": name, "batch": batch - dropped}
        dropped += (await connection.execute(DELETE_WORK, wanted)).rowcount
        if dropped >= batch:
            break
        await connection.execute(FORGET_HANDLER, {"handler": name})
    return dropped
