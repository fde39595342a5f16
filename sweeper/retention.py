"""Keys past their time: first the answer goes and a tombstone stays, then the tombstone goes.

Keys that are `in_progress` or `unknown`, and keys whose intent has an open dead letter, are never touched. The intent
keeps its own state: a late proof still settles it. Rows that somebody else holds are skipped, so nobody waits.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.sweeper.pages import Place

# A key at rest goes only with an outbox row that waits for nothing: no redrive of ours, no proof, no step done before.
# Subqueries that give one value, and not EXISTS, so that no plan of any size reads a table whole to join it.
EXPIRED_KEYS = """
SELECT k.intent_id, k.expires_at, k.state
  FROM idem.idempotency_keys k
 WHERE k.state IN ('completed', 'failed_retryable') AND k.expires_at <= statement_timestamp()
   AND (k.expires_at, k.intent_id) > (%(at)s, %(row)s)
   AND (SELECT d.id FROM idem.dead_letters d
         WHERE d.intent_id = k.intent_id AND d.resolved_at IS NULL LIMIT 1) IS NULL
   AND (k.state = 'completed' OR (SELECT o.status = 'held' AND o.redrive_at IS NULL AND o.step = 1
                                    FROM idem.outbox o WHERE o.intent_id = k.intent_id))
 ORDER BY k.expires_at, k.intent_id
 LIMIT %(batch)s
"""


async def expire_keys(
    connection: AsyncConnection[Any], *, batch: int, tombstone_ttl: float, place: Place | None = None
) -> int:
    """Empty the answers of up to `batch` keys whose time has passed; how many. They answer `expired` from then on.

    A tombstone stays for `tombstone_ttl` seconds.
    """
    place = place or Place()
    due = await (await connection.execute(EXPIRED_KEYS, place.parameters(batch))).fetchall()
    place.move(due, batch)
    if not due:
        return 0
    async with connection.transaction():
        intents = [intent for intent, _, state in due if state == "completed"]
        intents += await _hold_rows(connection, [intent for intent, _, state in due if state != "completed"])
        return await _expire(connection, intents, tombstone_ttl)


ROWS_AT_REST = """
SELECT o.intent_id
  FROM idem.outbox o
 WHERE o.intent_id = ANY (%(intents)s) AND o.status = 'held' AND o.redrive_at IS NULL AND o.step = 1
   AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
 ORDER BY o.id
   FOR UPDATE SKIP LOCKED
"""


async def _hold_rows(connection: AsyncConnection[Any], intents: list[UUID]) -> list[UUID]:
    # The client's retry, a redrive and a late proof all begin with the row's lock; the key is locked after it.
    if not intents:
        return []
    held = await connection.execute(ROWS_AT_REST, {"intents": intents})
    return [record[0] for record in await held.fetchall()]


EXPIRE = """
WITH due AS MATERIALIZED (
    SELECT k.ctid AS place, k.intent_id, k.state
      FROM idem.idempotency_keys k
     WHERE k.intent_id = ANY (%(intents)s) AND k.state IN ('completed', 'failed_retryable')
       AND k.expires_at <= statement_timestamp()
       AND (SELECT d.id FROM idem.dead_letters d
             WHERE d.intent_id = k.intent_id AND d.resolved_at IS NULL LIMIT 1) IS NULL
     ORDER BY k.intent_id
       FOR UPDATE OF k SKIP LOCKED
), expired AS (
    UPDATE idem.idempotency_keys k
       SET state = 'expired',
           response_status = NULL, response_headers = NULL, response_body = NULL, response_schema_version = NULL,
           last_error_code = NULL, last_error_message = NULL,
           completed_at = coalesce(k.completed_at, statement_timestamp()),
           expires_at   = statement_timestamp() + make_interval(secs => %(ttl)s)
     WHERE k.ctid = ANY (ARRAY(SELECT d.place FROM due d))
    RETURNING k.intent_id
), seen AS (
    INSERT INTO idem.evidence (intent_id, source, kind, from_state, to_state)
    SELECT e.intent_id, 'sweeper', 'expired', d.state, 'expired' FROM expired e JOIN due d USING (intent_id)
)
SELECT count(*) FROM expired
"""


async def _expire(connection: AsyncConnection[Any], intents: list[UUID], tombstone_ttl: float) -> int:
    cursor = await connection.execute(EXPIRE, {"intents": intents, "ttl": tombstone_ttl})
    record = await cursor.fetchone()
    return int(record[0]) if record else 0


DELETE_TOMBSTONES = """
WITH gone AS (
    DELETE FROM idem.idempotency_keys k
     WHERE k.ctid = ANY (ARRAY(
               SELECT t.ctid FROM idem.idempotency_keys t
                WHERE t.state = 'expired' AND t.expires_at <= statement_timestamp()
                  AND (SELECT d.id FROM idem.dead_letters d
                        WHERE d.intent_id = t.intent_id AND d.resolved_at IS NULL LIMIT 1) IS NULL
                ORDER BY t.expires_at
                LIMIT %(batch)s
                  FOR UPDATE OF t SKIP LOCKED))
    RETURNING k.intent_id
), seen AS (
    INSERT INTO idem.evidence (intent_id, source, kind, from_state)
    SELECT g.intent_id, 'sweeper', 'deleted', 'expired' FROM gone g
)
SELECT count(*) FROM gone
"""


async def delete_tombstones(connection: AsyncConnection[Any], *, batch: int) -> int:
    """Delete up to `batch` tombstones whose time has passed; how many. Their keys are new from then on."""
    cursor = await connection.execute(DELETE_TOMBSTONES, {"batch": batch})
    record = await cursor.fetchone()
    return int(record[0]) if record else 0
