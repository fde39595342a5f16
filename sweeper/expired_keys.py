"""Keys past their time: first the answer goes and a tombstone stays, then the tombstone goes.

Keys that are `in_progress` or `unknown`, and keys whose intent has an open dead letter, are never touched. The intent
keeps its own state: a late proof still settles it. Rows that another session locks are skipped, so no session waits.

Statements are written so that every plan reads only the rows that it needs, with statistics of any age: conditions that
could tempt the planner to read a whole partial index, or to join by hashing a table, stand in a CASE or in a subquery
with one value. They are prepared at once: to plan one takes PostgreSQL as long as ten batches.
"""

from collections import Counter, defaultdict
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.observe import after_commit
from idem.outbox.observe.after_commit import Moved
from idem.outbox.settle.change_pages import Place
from idem.outbox.settle.record import noted
from idem.sweeper.abandoned import delete_rows_of
from idem.sweeper.tenant_counts import hold_counts, subtract

# Keys of every state, so that a page reads no more than it returns, however many stay because their call is open.
PAST_KEYS = """
SELECT k.intent_id, k.expires_at, k.state
  FROM idem.idempotency_keys k
 WHERE k.expires_at <= statement_timestamp() AND (k.expires_at, k.intent_id) > (%(at)s, %(row)s)
 ORDER BY k.expires_at, k.intent_id
 LIMIT %(batch)s
"""


async def prune_keys(
    connection: AsyncConnection[Any], *, batch: int, tombstone_ttl: float, place: Place | None = None
) -> dict[str, int]:
    """Take the next `batch` keys whose time has passed one step further, as far as they may go; how many.

    A settled key, or one at rest, loses its answer and says `expired` for `tombstone_ttl` seconds; a tombstone goes,
    and its key is new from then on. Returns `expired`, `deleted` and `abandoned`: rows at rest that went
    with their key.
    """
    place = place or Place()
    past = await (await connection.execute(PAST_KEYS, place.parameters(batch), prepare=True)).fetchall()
    place.move(past, batch)
    by_state: dict[str, list[UUID]] = defaultdict(list)
    for intent, _, state in past:
        by_state[state].append(intent)
    async with after_commit.transaction(connection):
        at_rest = await _hold_rows(connection, by_state["failed_retryable"])
        expired = await _expire(connection, by_state["completed"] + at_rest, tombstone_ttl)
    gone = await _delete(connection, by_state["expired"])
    abandoned = await delete_rows_of(connection, gone, tombstone_ttl)
    return {"expired": expired, "deleted": len(gone), "abandoned": abandoned}


# A key at rest goes only with a row that waits for nothing: no redrive of ours, no proof, no step done before.
ROWS_AT_REST = """
SELECT o.intent_id
  FROM idem.outbox o
 WHERE o.intent_id = ANY (%(intents)s)
   AND CASE WHEN o.status = 'held' THEN o.redrive_at IS NULL AND o.step = 1 END
   AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
 ORDER BY o.id
   FOR UPDATE SKIP LOCKED
"""


async def _hold_rows(connection: AsyncConnection[Any], intents: list[UUID]) -> list[UUID]:
    # The client's retry, a redrive and a late proof all begin with the row's lock; the key is locked after it.
    if not intents:
        return []
    held = await connection.execute(ROWS_AT_REST, {"intents": intents}, prepare=True)
    return [record[0] for record in await held.fetchall()]


_EXPIRED = noted(
    "sweeper", "expired", "expired e JOIN due d USING (intent_id)",
    intent_id="e.intent_id", from_state="d.state", to_state="'expired'",
)  # fmt: skip
EXPIRE = f"""
WITH due AS MATERIALIZED (
    SELECT k.ctid AS place, k.intent_id, k.state
      FROM idem.idempotency_keys k
     WHERE k.intent_id = ANY (%(intents)s)
       AND CASE WHEN k.state IN ('completed', 'failed_retryable') THEN k.expires_at <= statement_timestamp() END
       AND k.tenant_id <> ALL (%(busy)s)
       AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
             WHERE d.intent_id = k.intent_id) IS NOT TRUE
       -- The key of a flow that is partly done stays, also where a step has given its client the answer.
       AND (SELECT n.id FROM idem.intents n
             WHERE n.id = k.intent_id AND (n.recovery_point = 0 OR n.state = 'completed')
               FOR KEY SHARE SKIP LOCKED) IS NOT NULL
     ORDER BY k.intent_id
       FOR UPDATE OF k SKIP LOCKED
), expired AS (
    UPDATE idem.idempotency_keys k
       SET state = 'expired',
           response_status = NULL, response_headers = NULL, response_body = NULL, response_schema_version = NULL,
           last_error_code = NULL, last_error_message = NULL,
           completed_at = coalesce(k.completed_at, statement_timestamp()),
           -- For ever, as far as a driver's dates go: Python has no infinity.
           expires_at   = CASE WHEN k.refuse_after_expiry THEN timestamptz '9999-12-31 00:00+00'
                               ELSE statement_timestamp() + make_interval(secs => %(ttl)s) END
     WHERE k.ctid = ANY (ARRAY(SELECT d.place FROM due d))
    RETURNING k.intent_id, k.tenant_id, k.operation, k.idempotency_key
), seen AS (
    {_EXPIRED}
)
SELECT e.intent_id, e.tenant_id, e.operation, e.idempotency_key, d.state FROM expired e JOIN due d USING (intent_id)
"""  # noqa: S608


async def _expire(connection: AsyncConnection[Any], intents: list[UUID], tombstone_ttl: float) -> int:
    if not intents:
        return 0
    # Counts that another session holds keep their tenants' keys for the next pass, and nobody else's.
    busy = await hold_counts(connection, intents)
    wanted = {"intents": intents, "ttl": tombstone_ttl, "busy": busy}
    expired = await (await connection.execute(EXPIRE, wanted, prepare=True)).fetchall()
    for intent, tenant, operation, key, state in expired:
        _emit(connection, Moved(tenant, operation, key, intent, None, "sweeper", "expired", state, "expired"))
    await subtract(connection, Counter(tenant for _, tenant, *_ in expired))
    return len(expired)


def _emit(connection: AsyncConnection[Any], key: Moved) -> None:
    after_commit.emit(connection, partial(after_commit.moved, key))


_DELETED = noted("sweeper", "deleted", "gone g", intent_id="g.intent_id", from_state="'expired'")
DELETE_TOMBSTONES = f"""
WITH gone AS (
    DELETE FROM idem.idempotency_keys k
     WHERE k.ctid = ANY (ARRAY(
               SELECT t.ctid FROM idem.idempotency_keys t
                WHERE t.intent_id = ANY (%(intents)s)
                  AND CASE WHEN t.state = 'expired' THEN t.expires_at <= statement_timestamp() END
                  AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
                        WHERE d.intent_id = t.intent_id) IS NOT TRUE
                  AND (SELECT n.id FROM idem.intents n WHERE n.id = t.intent_id FOR KEY SHARE SKIP LOCKED) IS NOT NULL
                ORDER BY t.intent_id
                  FOR UPDATE OF t SKIP LOCKED))
    RETURNING k.intent_id, k.tenant_id, k.operation, k.idempotency_key
), seen AS (
    {_DELETED}
)
SELECT g.intent_id, g.tenant_id, g.operation, g.idempotency_key FROM gone g
"""  # noqa: S608


async def _delete(connection: AsyncConnection[Any], intents: list[UUID]) -> list[UUID]:
    if not intents:
        return []
    gone = await (await connection.execute(DELETE_TOMBSTONES, {"intents": intents}, prepare=True)).fetchall()
    for intent, tenant, operation, key in gone:
        _emit(connection, Moved(tenant, operation, key, intent, None, "sweeper", "deleted", "expired", None))
    return [record[0] for record in gone]
