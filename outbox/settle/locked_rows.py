"""Rows under their lock: read by a snapshot that was taken after the lock, together with their stored proofs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true, records
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof, outbox_row
from idem.outbox.domain.outcomes import proof
from idem.outbox.settle.step_columns import contradiction, step_columns


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A row under its lock, with the proofs that wait for it."""

    row: OutboxRow
    stored: tuple[StoredProof, ...]


LOCK = "SELECT o.id FROM idem.outbox o WHERE o.id = %(id)s FOR UPDATE"
# The row with all that a change of it writes: what is held of it by another session is never waited for.
LOCK_OR_SKIP = """
WITH row AS MATERIALIZED (
    SELECT o.id, o.intent_id FROM idem.outbox o WHERE o.id = %(id)s FOR UPDATE SKIP LOCKED
), key AS MATERIALIZED (
    SELECT k.intent_id FROM idem.idempotency_keys k WHERE k.intent_id = (SELECT r.intent_id FROM row r)
       FOR NO KEY UPDATE SKIP LOCKED
), intent AS MATERIALIZED (
    SELECT n.id FROM idem.intents n WHERE n.id = (SELECT r.intent_id FROM row r) FOR NO KEY UPDATE SKIP LOCKED
), letters AS MATERIALIZED (
    SELECT d.id FROM idem.dead_letters d WHERE d.intent_id = (SELECT r.intent_id FROM row r) AND d.resolved_at IS NULL
       FOR NO KEY UPDATE SKIP LOCKED
)
SELECT r.id FROM row r JOIN intent n ON n.id = r.intent_id
 WHERE (SELECT bool_or(k.intent_id <> ALL (ARRAY(SELECT f.intent_id FROM key f)))
          FROM idem.idempotency_keys k WHERE k.intent_id = r.intent_id) IS NOT TRUE
   AND (SELECT bool_or(d.resolved_at IS NULL AND d.id <> ALL (ARRAY(SELECT f.id FROM letters f)))
          FROM idem.dead_letters d WHERE d.intent_id = r.intent_id) IS NOT TRUE
"""
FIRST_ID = UUID(int=0)
"""Where a walk over rows in the order of their ids begins."""

IS_GONE = "SELECT NOT EXISTS (SELECT FROM idem.outbox WHERE id = %(id)s)"
SOON = 0.5
"""Seconds: much longer than any lock of ours is held."""
READ = f"""
SELECT o.id, o.intent_id, o.operation, o.provider, o.account, o.status, n.state, o.claim_token AS token, o.attempt,
       o.provider_key::text AS provider_key, o.step, n.version, o.redrives, o.sweeps, o.lookups, o.absences, o.failures,
       o.marks_start, o.inline, o.claimed_by AS holder, o.provider_reference AS reference,
       o.approval, n.asked_by, o.key_burned, o.cancel_sent, o.server_error,
       CASE WHEN o.ordering_key IS NULL THEN false
            ELSE idem.is_blocked(o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number) END AS blocked,
       o.redrive_at IS NOT NULL AS redrives_itself,
       (SELECT r.outbox_id FROM idem.requests r WHERE r.outbox_id = o.id AND r.generation = o.generation LIMIT 1)
       IS NOT NULL AS frozen,
       coalesce(o.status = 'claimed' AND o.claimed_until > statement_timestamp(), false) AS live,
       o.started_at IS NOT NULL AS started,
       extract(epoch FROM o.start_before - statement_timestamp())::float8 AS start_left,
       extract(epoch FROM o.scheduled_at - statement_timestamp())::float8 AS scheduled_left,
       extract(epoch FROM o.quiet_after - statement_timestamp())::float8 AS quiet_left,
       extract(epoch FROM statement_timestamp() - o.claimed_at)::float8 AS claim_age,
       idem.memory_age(o.first_sent_at, o.doubted_since) AS memory_age,
       extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS status_age,
       idem.memory_age(NULL, o.doubted_since) AS doubted_for, o.replay_window,
       EXISTS (SELECT FROM idem.daemons d
                WHERE d.id = o.claimed_by
                  AND (d.ended_at IS NOT NULL
                       OR (d.seen_at > o.claimed_until AND NOT o.claim_token = ANY (d.tokens)))) AS holder_known,
       EXISTS (SELECT FROM idem.idempotency_keys k
                WHERE k.tenant_id = n.tenant_id AND k.operation = n.operation
                  AND k.idempotency_key = n.idempotency_key AND k.intent_id <> n.id) AS key_used_anew,
       o.step_name IS NOT NULL
       AND NOT EXISTS (SELECT FROM idem.idempotency_keys k
                        WHERE k.intent_id = n.id AND k.state <> 'expired') AS key_over,
       {contradiction("o")}
       OR (SELECT h.id FROM idem.proofs h WHERE h.outbox_id = o.id AND h.outcome = 'hint' LIMIT 1) IS NOT NULL
       AS contradicted,
       o.step_name IS NOT NULL
       AND (SELECT bool_or(l.resolved_at IS NULL AND l.reason = 'partial' AND l.details ? 'refused')
              FROM idem.dead_letters l WHERE l.intent_id = n.id) IS TRUE AS refused_there,
       CASE WHEN o.step_name IS NOT NULL THEN
           ARRAY(SELECT l.details #>> '{{refused,reference}}' FROM idem.dead_letters l
                  WHERE l.intent_id = n.id AND l.reason = 'partial' AND l.details ->> 'step' = o.step_name
                    AND l.details #>> '{{refused,reference}}' IS NOT NULL) END AS refusals,
       CASE WHEN o.step_name IS NOT NULL THEN
           coalesce((SELECT max((l.details #>> '{{refused,attempt}}')::integer) FROM idem.dead_letters l
                      WHERE l.intent_id = n.id AND l.reason = 'partial' AND l.details ->> 'step' = o.step_name), 0)
           ELSE 0 END AS refused_attempt,
       {step_columns("o")}
  FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id])
 WHERE o.id = ANY (%(ids)s) ORDER BY o.id
"""  # noqa: S608
STORED = """
SELECT p.outbox_id, p.id, p.source, p.outcome, p.reference, p.status, p.fields, p.http_status, p.attempt,
       p.answer_status, p.answer_headers, p.answer_body, p.interim,
       p.source IN ('worker', 'inline', 'reconciler') AND p.attempt IS NOT NULL
       AND (EXISTS (SELECT FROM idem.outbox o WHERE o.id = p.outbox_id AND o.cancel_sent AND o.attempt > p.attempt)
            OR EXISTS (SELECT FROM idem.evidence e
                        WHERE e.intent_id = p.intent_id AND e.outbox_id = p.outbox_id AND e.attempt > p.attempt
                          AND e.details ? 'cancelled_key')) AS undone
  FROM (SELECT f.* FROM idem.proofs f WHERE f.outbox_id = ANY (%(ids)s) OFFSET 0) AS p
 WHERE p.outcome <> 'hint' ORDER BY p.stored_at, p.id
"""


async def lock(connection: AsyncConnection[Any], row_id: UUID, *, skip: bool = False) -> LockedRow | None:
    """Lock one row for the rest of the transaction and read it.

    None: the row is gone, or (`skip`) another session holds it, its key, its intent or an open entry of it.
    """
    locked = await connection.execute(LOCK_OR_SKIP if skip else LOCK, {"id": row_id})
    if await locked.fetchone() is None:
        return None
    return next(iter(await read_locked(connection, [row_id])), None)


async def lock_soon(connection: AsyncConnection[Any], row_id: UUID) -> LockedRow | None:
    """As `lock`, but a session that holds the row for longer than `SOON` is not waited for.

    The retry of a key at rest locks its row in the client's own transaction, which may stay open for minutes; a
    result must not wait for that with all the results behind it (hazard 22). None: gone, or still held.
    """
    until = asyncio.get_running_loop().time() + SOON
    while True:
        found = await lock(connection, row_id, skip=True)
        if found is not None or await is_gone(connection, row_id) or asyncio.get_running_loop().time() > until:
            return found
        await asyncio.sleep(SOON / 10)


async def is_gone(connection: AsyncConnection[Any], row_id: UUID) -> bool:
    """Whether the row has left the outbox."""
    return await is_true(connection, IS_GONE, {"id": row_id})


async def read_locked(connection: AsyncConnection[Any], row_ids: Sequence[UUID]) -> list[LockedRow]:
    """Read rows that this transaction has locked, in the order of their ids."""
    if not row_ids:
        return []
    ids = {"ids": list(row_ids)}
    cursor = records(connection)
    rows = [outbox_row(record) for record in await (await cursor.execute(READ, ids)).fetchall()]
    stored: dict[UUID, list[StoredProof]] = {}
    for r in await (await cursor.execute(STORED, ids)).fetchall():
        stored.setdefault(r.outbox_id, []).append(_stored(r))
    return [LockedRow(row, tuple(stored.get(row.id, ()))) for row in rows]


def _stored(record: Any) -> StoredProof:
    answer = None
    if record.answer_status is not None:
        answer = Answer(record.answer_status, bytes(record.answer_body), record.answer_headers)
    return StoredProof(
        id=record.id,
        source=record.source,
        proof=proof(record.outcome, record.reference, record.status, record.fields),
        answer=answer,
        http_status=record.http_status,
        attempt=record.attempt,
        interim=record.interim,
        undone=record.undone,
    )
