"""Removes rows at rest whose key has expired, with evidence: no retry can reach them.

A client's retry of an expired key is answered 410, and a redrive is refused. A key at rest lives at least as long as a
late proof can come, and its tombstone as long again, so nothing is expected for such a row. If a proof comes all the
same, it contradicts what the client was told: `idem.outbox.settle.proofs.compare` opens a conflict.

If it had a place in an order and its refusal would hold that, so does this: it never happened, and nobody has decided
about those behind it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.observe import after_commit
from idem.outbox.observe.after_commit import Moved
from idem.outbox.settle.change_pages import Place
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.outbox.settle.record import noted

ABANDONED = """
SELECT o.id, o.status_since
  FROM idem.outbox o
 WHERE o.status = 'held' AND o.status_since <= statement_timestamp() - make_interval(secs => %(ttl)s)
   AND (o.status_since, o.id) > (%(at)s, %(row)s)
 ORDER BY o.status_since, o.id
 LIMIT %(batch)s
"""
# A key that is refused for ever keeps its tombstone for ever: its row leaves when another tombstone would go. Steps
# that were done before this one, lost commits, a stored proof or an open entry: each still waits for something.
_NOTED = noted(
    "sweeper", "row_deleted", "due d JOIN gone g USING (id)",
    intent_id="d.intent_id", outbox_id="d.id", step="d.step", attempt="d.attempt", from_status="'held'",
)  # fmt: skip
DELETE_ROWS = f"""
WITH due AS MATERIALIZED (
    SELECT o.ctid AS place, o.id, o.intent_id, o.step, o.attempt
      FROM idem.outbox o
     WHERE o.id = ANY (%(ids)s)
       AND CASE WHEN o.status = 'held'
                THEN o.redrive_at IS NULL AND o.doubted_since IS NULL AND o.step = 1
                     AND coalesce(o.quiet_after <= statement_timestamp(), true) END
       AND (SELECT bool_or(k.state <> 'expired'
                           OR k.completed_at > statement_timestamp() - make_interval(secs => %(ttl)s))
              FROM idem.idempotency_keys k WHERE k.intent_id = o.intent_id) IS NOT TRUE
       AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
       AND NOT {O_IS_LISTED}
       AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
             WHERE d.intent_id = o.intent_id) IS NOT TRUE
       AND (SELECT n.id FROM idem.intents n WHERE n.id = o.intent_id FOR KEY SHARE SKIP LOCKED) IS NOT NULL
     ORDER BY o.id
       FOR UPDATE OF o SKIP LOCKED
), gone AS (
    DELETE FROM idem.outbox o WHERE o.ctid = ANY (ARRAY(SELECT d.place FROM due d))
    RETURNING o.id, o.intent_id, o.provider, o.account, o.tenant_id, o.ordering_group, o.ordering_key,
              o.ordering_number, o.refusal_holds
), kept_back AS (
    INSERT INTO idem.order_holds (tenant_id, ordering_group, ordering_key, intent_id, why)
    SELECT g.tenant_id, g.ordering_group, g.ordering_key, g.intent_id, 'abandoned'
      FROM gone g WHERE g.ordering_number IS NOT NULL AND g.refusal_holds
        ON CONFLICT DO NOTHING
), seen AS (
    {_NOTED}
)
SELECT n.tenant_id, n.operation, n.idempotency_key, n.id, n.state, g.provider, g.account
  FROM gone g JOIN idem.intents n ON n.id = ANY (ARRAY[g.intent_id])
"""  # noqa: S608


async def delete_rows(
    connection: AsyncConnection[Any], *, batch: int, tombstone_ttl: float, place: Place | None = None
) -> int:
    """Take the rows out of the next `batch` rows at rest whose key expired `tombstone_ttl` seconds ago; how many.

    The intent stays as it is, `failed_retryable`, and its history goes after its retention.
    """
    place = place or Place()
    wanted = place.parameters(batch) | {"ttl": tombstone_ttl}
    picked = await (await connection.execute(ABANDONED, wanted)).fetchall()
    place.move(picked, batch)
    return await _delete(connection, [record[0] for record in picked], tombstone_ttl)


ROWS_OF = "SELECT o.id FROM idem.outbox o WHERE o.intent_id = ANY (%(intents)s)"


async def delete_rows_of(connection: AsyncConnection[Any], intents: Sequence[UUID], tombstone_ttl: float) -> int:
    """Take the rows out of intents whose tombstones have gone just now; how many. The walk finds what this leaves."""
    if not intents:
        return 0
    picked = await (await connection.execute(ROWS_OF, {"intents": list(intents)})).fetchall()
    return await _delete(connection, [record[0] for record in picked], tombstone_ttl)


async def _delete(connection: AsyncConnection[Any], ids: list[UUID], tombstone_ttl: float) -> int:
    if not ids:
        return 0
    async with after_commit.transaction(connection):
        gone = await (await connection.execute(DELETE_ROWS, {"ids": ids, "ttl": tombstone_ttl})).fetchall()
        for tenant, operation, key, intent, state, provider, account in gone:
            left = Moved(
                tenant, operation, key, intent, None, "sweeper", "deleted",
                state, state, "held", None, provider, account,
            )  # fmt: skip
            after_commit.emit(connection, partial(after_commit.moved, left))
    return len(gone)
