"""What waits for its turn by an ordering key, what blocks it, and an operator's word that the others may go on."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from idem.outbox.database.pool import records
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.observe import after_commit
from idem.outbox.operator import dead_letters, locking
from idem.outbox.operator.listing import Record
from idem.outbox.settle.order import promote_key, waiting_heads
from idem.outbox.settle.record import note_operator
from idem.outbox.values.errors import OperatorRefused

COUNTED = 1000
"""Where the count of a key's followers stops: 100,000 that wait for one row make this list no slower."""
KEYS = 10_000
"""Ordering keys that one list reads."""

_OF_TENANT = "(%(tenant)s::text IS NULL OR f.tenant_id = %(tenant)s)"
# What blocks: the hold, else the first open row.
BLOCKED = f"""
WITH RECURSIVE {waiting_heads("coalesce(%(tenant)s::text, ''), '', ''", _OF_TENANT)}, keys AS (
    SELECT f.tenant_id, f.ordering_group, f.ordering_key
      FROM (SELECT * FROM heads LIMIT {KEYS}) AS f WHERE {_OF_TENANT}
    UNION
    SELECT * FROM (SELECT h.tenant_id, h.ordering_group, h.ordering_key FROM idem.order_holds h
                    WHERE %(tenant)s::text IS NULL OR h.tenant_id = %(tenant)s
                    ORDER BY h.since LIMIT {KEYS}) AS h
)
SELECT k.tenant_id, k.ordering_group, k.ordering_key,
       coalesce(h.intent_id, f.intent_id) AS blocked_by, coalesce(h.why, f.status) AS why,
       coalesce(b.operation, f.operation) AS operation, b.label,
       ARRAY(SELECT d.reason FROM idem.dead_letters d
              WHERE d.intent_id = b.id AND d.resolved_at IS NULL ORDER BY d.reason) AS dead_letters,
       coalesce(h.since, f.status_since) AS blocked_since,
       extract(epoch FROM statement_timestamp() - coalesce(h.since, f.status_since))::float8 AS blocked_for,
       w.rows AS waiting, s.intent_id AS next, s.status_since AS waiting_since,
       extract(epoch FROM statement_timestamp() - s.status_since)::float8 AS waiting_for
  FROM keys k
  LEFT JOIN idem.order_holds h ON h.tenant_id = ANY (ARRAY[k.tenant_id]) AND h.ordering_group = k.ordering_group
                              AND h.ordering_key = k.ordering_key
  LEFT JOIN LATERAL (
       SELECT o.intent_id, o.status, o.operation, o.status_since FROM idem.outbox o
        WHERE o.tenant_id = k.tenant_id AND o.ordering_group = k.ordering_group AND o.ordering_key = k.ordering_key
          AND o.ordering_number IS NOT NULL
        ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1) AS f ON f.status <> 'waiting'
  LEFT JOIN idem.intents b ON b.id = ANY (ARRAY[coalesce(h.intent_id, f.intent_id)])
  LEFT JOIN LATERAL (
       SELECT o.intent_id, o.status_since FROM idem.outbox o
        WHERE o.status || '' = 'waiting' AND o.tenant_id = k.tenant_id AND o.ordering_group = k.ordering_group
          AND o.ordering_key = k.ordering_key
        ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1) AS s ON true
 CROSS JOIN LATERAL (
       SELECT count(*)::integer AS rows
         FROM (SELECT FROM idem.outbox o
                WHERE o.status || '' = 'waiting' AND o.tenant_id = k.tenant_id AND o.ordering_group = k.ordering_group
                  AND o.ordering_key = k.ordering_key LIMIT {COUNTED}) AS c) AS w
 ORDER BY s.status_since NULLS LAST, h.since LIMIT %(limit)s
"""  # noqa: S608


async def blocked(connection: AsyncConnection[Any], *, tenant: str | None = None, limit: int = 100) -> list[Record]:
    """The ordering keys in which something waits, or that are held: what has waited longest comes first.

    `blocked_by` is the intent that the others wait for, `why` the status of its row (or `refused`, `abandoned`: it has
    no row any more, and its key is held), `next` the first that waits. None in `blocked_by`: the next pass of the
    sweeper lets `next` go on. `waiting` stops at 1,000.
    """
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(BLOCKED, {"tenant": tenant, "limit": limit})).fetchall()


@dataclass(frozen=True, slots=True)
class Unblocked:
    """What an operator has let go on: `was` is what held the others, `promoted` the intents that are queued now."""

    intent_id: UUID
    action: str
    was: str
    ordering_key: str
    promoted: tuple[UUID, ...]


RELEASE = """
DELETE FROM idem.order_holds h WHERE h.intent_id = %(intent)s
RETURNING h.tenant_id, h.ordering_group, h.ordering_key, h.why
"""
PLACE = """
SELECT o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number, o.status,
       CASE WHEN o.ordering_key IS NULL THEN false
            ELSE idem.is_blocked(o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number) END AS blocked
  FROM idem.outbox o WHERE o.intent_id = %(intent)s
"""
LEAVE = "SELECT idem.leave_order(%(row)s)"
SKIPPED = (OutboxStatus.UNKNOWN, OutboxStatus.AWAITING, OutboxStatus.HELD)
"""The statuses in which a row may be taken out of the order; every other one moves by itself."""


async def unblock(
    connection: AsyncConnection[Any], intent: UUID, *, by: str, reason: str, skip: bool = False
) -> Unblocked:
    """Let go on what waits for this intent. With `skip` also where the intent has not ended: it leaves the order, and
    if it comes back to work, it gets a new place behind the others. Raises OperatorRefused.
    """
    dead_letters.check_named(by, reason)
    said = {"by": by, "reason": reason}
    async with after_commit.transaction(connection):
        cursor = records(connection)
        held = await (await cursor.execute(RELEASE, {"intent": intent})).fetchone()
        if held is not None:
            await note_operator(connection, intent, "order_released", said | {"why": held.why})
            place = (held.tenant_id, held.ordering_group, held.ordering_key)
            promoted = await promote_key(connection, place, "operator", after=intent)
            return Unblocked(intent, "order_released", held.why, held.ordering_key, tuple(promoted))
    async with locking.lock_intent(connection, intent, None, by, reason) as found:
        record = await (await records(connection).execute(PLACE, {"intent": intent})).fetchone()
        assert record is not None  # its row is locked
        if (why := against_unblock(record, skip=skip)) is not None:
            raise OperatorRefused(f"intent {intent}: {why}")
        await connection.execute(LEAVE, {"row": found.row.id})
        await note_operator(connection, intent, "order_skipped", said | {"status": record.status})
        place = (record.tenant_id, record.ordering_group, record.ordering_key)
        promoted = await promote_key(connection, place, "operator", after=intent)
        return Unblocked(intent, "order_skipped", record.status, record.ordering_key, tuple(promoted))


async def place(connection: AsyncConnection[Any], intent: UUID) -> Any:
    """Where an open row stands in the order, for a preview; None: the intent has no open row."""
    return await (await records(connection).execute(PLACE, {"intent": intent})).fetchone()


def against_unblock(record: Any, *, skip: bool) -> str | None:
    """Why an open row cannot be taken out of the order now; None: it can."""
    if record.ordering_key is None:
        return "it has no ordering key, so nothing waits for it"
    if record.ordering_number is None:
        return "it is out of the order already: what waited for it goes on"
    if record.blocked:
        return "it waits for others itself: `idem intents blocked` names the intent that blocks them all"
    if record.status not in SKIPPED:
        return f"it is {record.status}: what waits for it goes on as soon as it has ended"
    if not skip:
        return (
            f"it is {record.status} and has not ended. Settle it first; or, if the others may go on before that is "
            "known, say --skip"
        )
    return None
