"""Removes history past its time: evidence, events, requests of settled intents, webhooks, ended daemons.

The triggers of the tables refuse to delete what may still be needed; these statements ask only for what the triggers
permit. Ids of intents and webhook events are UUIDv7, so "older than" is a range of ids. Intents are never deleted, so
the walk goes over the ids that still have evidence.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

FIRST = UUID(int=0)


@dataclass(slots=True)
class HistoryWalk:
    """How far the walk over old intents has come. It may last longer than a pass, and begins anew at its end."""

    after: UUID = FIRST
    over: bool = False


# A loose index scan: each round is one probe of the primary key, however much an intent has.
OLD_INTENTS = """
WITH RECURSIVE bound AS MATERIALIZED (
    SELECT idem.first_uuid7(statement_timestamp() - i.evidence_retention) AS before FROM idem.installation i
), old (intent_id) AS (
    (SELECT e.intent_id FROM idem.evidence e
      WHERE e.intent_id > %(after)s AND e.intent_id < (SELECT b.before FROM bound b)
      ORDER BY e.intent_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.intent_id FROM idem.evidence e
             WHERE e.intent_id > o.intent_id AND e.intent_id < (SELECT b.before FROM bound b)
             ORDER BY e.intent_id LIMIT 1)
      FROM old o WHERE o.intent_id IS NOT NULL
)
SELECT o.intent_id,
       (SELECT i.state FROM idem.intents i WHERE i.id = o.intent_id) IN ('completed', 'failed_retryable')
       AND (SELECT w.id FROM idem.outbox w WHERE w.intent_id = o.intent_id LIMIT 1) IS NULL
       AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
             WHERE d.intent_id = o.intent_id) IS NOT TRUE AS settled
  FROM old o WHERE o.intent_id IS NOT NULL
 LIMIT %(batch)s
"""


async def prune_history(connection: AsyncConnection[Any], *, batch: int, walk: HistoryWalk) -> dict[str, int]:
    """Delete what is past `installation.evidence_retention` of the next `batch` old intents; how many rows of what.

    An intent with an open row or an open dead letter keeps everything, however old it is. One at rest without a row is
    final: its key has expired.
    """
    found = await (await connection.execute(OLD_INTENTS, {"after": walk.after, "batch": batch})).fetchall()
    walk.over = len(found) < batch
    walk.after = FIRST if walk.over else found[-1][0]
    settled = [intent for intent, is_settled in found if is_settled]
    if not settled:
        return {}
    async with connection.transaction():
        return {
            "events": await _delete_events(connection, settled),
            "requests": await _delete_requests(connection, settled),
            # Last, because the walk finds an intent by its evidence.
            "evidence": await _delete_evidence(connection, settled),
        }


DELETE_EVENTS = """
WITH gone AS (
    DELETE FROM idem.events v
     WHERE v.ctid = ANY (ARRAY(
               SELECT e.ctid FROM idem.events e
                WHERE e.aggregateid = ANY (%(intents)s)
                  AND e.created_at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
                  FOR UPDATE OF e SKIP LOCKED))
    RETURNING v.id
), unmarked AS (
    DELETE FROM idem.handled_events h WHERE h.event_id = ANY (ARRAY(SELECT g.id FROM gone g))
)
SELECT count(*) FROM gone
"""


async def _delete_events(connection: AsyncConnection[Any], intents: list[UUID]) -> int:
    record = await (await connection.execute(DELETE_EVENTS, {"intents": intents})).fetchone()
    return int(record[0]) if record else 0


# A proof that still waits is compared by way of its request.
DELETE_REQUESTS = """
DELETE FROM idem.requests q
 WHERE q.ctid = ANY (ARRAY(
           SELECT r.ctid FROM idem.requests r
            WHERE r.intent_id = ANY (%(intents)s)
              AND r.created_at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
              AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = r.outbox_id LIMIT 1) IS NULL
              FOR UPDATE OF r SKIP LOCKED))
"""


async def _delete_requests(connection: AsyncConnection[Any], intents: list[UUID]) -> int:
    return (await connection.execute(DELETE_REQUESTS, {"intents": intents})).rowcount


DELETE_EVIDENCE = """
DELETE FROM idem.evidence v
 WHERE v.ctid = ANY (ARRAY(
           SELECT e.ctid FROM idem.evidence e
            WHERE e.intent_id = ANY (%(intents)s)
              AND e.at < statement_timestamp() - (SELECT i.evidence_retention FROM idem.installation i)
              FOR UPDATE OF e SKIP LOCKED))
"""


async def _delete_evidence(connection: AsyncConnection[Any], intents: list[UUID]) -> int:
    return (await connection.execute(DELETE_EVIDENCE, {"intents": intents})).rowcount


DELETE_WEBHOOK_EVENTS = """
WITH bound AS MATERIALIZED (
    SELECT statement_timestamp() - make_interval(secs => %(age)s) AS at,
           idem.first_uuid7(statement_timestamp() - make_interval(secs => %(age)s)) AS before
)
DELETE FROM idem.webhook_events v
 WHERE v.ctid = ANY (ARRAY(
           SELECT w.ctid FROM idem.webhook_events w
            WHERE w.id < (SELECT b.before FROM bound b) AND w.received_at < (SELECT b.at FROM bound b)
              AND w.fate NOT IN ('hint', 'deferred', 'early')
              AND coalesce((SELECT i.state FROM idem.intents i WHERE i.id = w.intent_id), 'completed')
                  IN ('completed', 'failed_retryable')
              AND (SELECT o.id FROM idem.outbox o WHERE o.intent_id = w.intent_id LIMIT 1) IS NULL
              AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                    WHERE d.webhook_event_id = w.id) IS NOT TRUE
              AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                    WHERE d.intent_id = w.intent_id) IS NOT TRUE
            ORDER BY w.id
            LIMIT %(batch)s
              FOR UPDATE OF w SKIP LOCKED))
"""


async def delete_webhook_events(connection: AsyncConnection[Any], *, batch: int, age: float) -> int:
    """Delete up to `batch` webhook events that were received more than `age` seconds ago; how many.

    One of an intent with an open row or an open dead letter is kept; so is what is still to be applied.
    """
    return (await connection.execute(DELETE_WEBHOOK_EVENTS, {"batch": batch, "age": age})).rowcount


DELETE_WEBHOOK_BODIES = """
WITH bound AS MATERIALIZED (
    SELECT statement_timestamp() - make_interval(secs => %(age)s) AS at,
           idem.first_uuid7(statement_timestamp() - make_interval(secs => %(age)s)) AS before
)
DELETE FROM idem.webhook_bodies v
 WHERE v.ctid = ANY (ARRAY(
           SELECT y.ctid FROM idem.webhook_bodies y
            WHERE y.webhook_event_id < (SELECT b.before FROM bound b)
              AND y.received_at < (SELECT b.at FROM bound b)
              AND coalesce((SELECT w.fate FROM idem.webhook_events w WHERE w.id = y.webhook_event_id), 'gone')
                  NOT IN ('hint', 'deferred', 'early')
              AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                    WHERE d.webhook_event_id = y.webhook_event_id) IS NOT TRUE
              AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                    WHERE d.intent_id = (SELECT w.intent_id FROM idem.webhook_events w
                                          WHERE w.id = y.webhook_event_id)) IS NOT TRUE
            ORDER BY y.webhook_event_id
            LIMIT %(batch)s
              FOR UPDATE OF y SKIP LOCKED))
"""


async def delete_webhook_bodies(connection: AsyncConnection[Any], *, batch: int, age: float) -> int:
    """Delete up to `batch` raw webhook bodies that are older than `age` seconds; how many.

    The event itself stays, so that its repetition is still known; a body that an operator may need stays too, and so
    does that of an event which is still to be applied.
    """
    return (await connection.execute(DELETE_WEBHOOK_BODIES, {"batch": batch, "age": age})).rowcount


DELETE_ANSWERS = """
DELETE FROM idem.provider_answers v
 WHERE v.ctid = ANY (ARRAY(
           SELECT a.ctid FROM idem.provider_answers a
            WHERE a.at < statement_timestamp() - make_interval(secs => %(age)s)
              AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                    WHERE d.intent_id = a.intent_id) IS NOT TRUE
            ORDER BY a.at
            LIMIT %(batch)s
              FOR UPDATE OF a SKIP LOCKED))
"""


async def delete_answers(connection: AsyncConnection[Any], *, batch: int, age: float) -> int:
    """Delete up to `batch` of providers' answers that are older than `age` seconds; how many.

    Those of an intent with an open dead letter stay for the operator.
    """
    return (await connection.execute(DELETE_ANSWERS, {"batch": batch, "age": age})).rowcount


DELETE_DAEMONS = """
DELETE FROM idem.daemons d
 WHERE d.id = ANY (ARRAY(
           SELECT o.id FROM idem.daemons o
            WHERE greatest(o.seen_at, o.ended_at) < statement_timestamp() - make_interval(secs => %(age)s)
            ORDER BY o.id
            LIMIT %(batch)s
              FOR UPDATE OF o SKIP LOCKED))
"""


async def delete_daemons(connection: AsyncConnection[Any], *, batch: int, age: float) -> int:
    """Delete up to `batch` daemons without a heartbeat for `age` seconds; how many.

    A claim that such a daemon still holds is swept after the longer wait, because the end of its holder is not on
    record.
    """
    return (await connection.execute(DELETE_DAEMONS, {"batch": batch, "age": age})).rowcount
