"""Applies an operator's statement that a change of the database lost nothing: doubted rows return to their status."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from idem.outbox.database import identity as identities
from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import decide, doubted_rows
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import FIRST_ID, read_locked
from idem.outbox.settle.record import noted

BATCH = 500
REDRIVE = "redrive"
"""The earlier status of a row that rested and would have been redriven automatically."""

# A subquery with one value, because a join would read all evidence that ever was. What `--lost` stated about an earlier
# change still holds: it covered every row that was open then, so each row that was listed before. A row that it left to
# be sent becomes unknown later, at its own limit or by another change. A row that an operator redrove on a statement is
# doubted for that too, whatever the database has lost: it may rest again, and is never sent from here.
QUARANTINED = """
SELECT o.id, w.was
  FROM idem.outbox o CROSS JOIN LATERAL (
       SELECT (SELECT CASE WHEN e.details ? 'redrive' THEN 'redrive' ELSE e.from_status END FROM idem.evidence e
                WHERE e.intent_id = o.intent_id AND e.outbox_id = o.id AND e.kind = 'database_changed'
                  AND (SELECT min(coalesce((f.details ->> 'listed_at')::timestamptz, f.at)) FROM idem.evidence f
                        WHERE f.intent_id = e.intent_id AND f.outbox_id = e.outbox_id
                          AND f.kind IN ('database_changed', 'database_doubted'))
                      > coalesce((SELECT i.lost_at FROM idem.installation i), '-infinity')
                  AND NOT EXISTS (SELECT FROM idem.evidence l
                                   WHERE l.intent_id = e.intent_id AND l.outbox_id = e.outbox_id AND l.id > e.id
                                     AND (l.to_status IS DISTINCT FROM 'unknown' OR l.kind = 'replay'))
                LIMIT 1) AS was) w
 WHERE o.status = 'unknown' AND o.claim_token IS NULL AND o.id > %(after)s AND w.was IS NOT NULL
   AND (w.was = 'held' OR o.denied_sent_at IS NULL)
 ORDER BY o.id LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED
"""
# Rows that kept their status under the doubt. A redrive on an operator's statement began the doubt for its own reason.
DOUBTED = """o.doubted_since IS NOT NULL AND (o.status = 'held' OR o.denied_sent_at IS NULL)
              AND (SELECT min(coalesce((e.details ->> 'listed_at')::timestamptz, e.at)) FROM idem.evidence e
                    WHERE e.intent_id = o.intent_id AND e.outbox_id = o.id
                      AND e.kind IN ('database_changed', 'database_doubted'))
                  > coalesce((SELECT i.lost_at FROM idem.installation i), '-infinity')"""
STILL_DOUBTED = f"SELECT count(*)::integer FROM idem.outbox o WHERE {DOUBTED}"  # noqa: S608
_BELIEVED = noted(
    "operator", "recovered_lossless", "believed b",
    intent_id="b.intent_id", outbox_id="b.id", step="b.step", attempt="b.attempt", from_status="b.status",
    to_status="b.status", details="%(details)s::jsonb",
)  # fmt: skip
BELIEVE = f"""
WITH believed AS (
    UPDATE idem.outbox u SET doubted_since = NULL
     WHERE u.id = ANY (ARRAY(
           SELECT o.id FROM idem.outbox o
            WHERE {DOUBTED}
              AND (SELECT n.id FROM idem.intents n WHERE n.id = o.intent_id FOR KEY SHARE SKIP LOCKED) IS NOT NULL
            ORDER BY o.id FOR UPDATE OF o SKIP LOCKED))
    RETURNING u.id, u.intent_id, u.step, u.attempt, u.status
)
{_BELIEVED}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Released:
    """`rows` have their earlier status again; `waiting` stay doubted, because another session locks them."""

    rows: int
    waiting: int


async def lossless(connection: AsyncConnection[Any], catalogue: Catalogue, *, by: str, reason: str) -> Released:
    """Apply an operator's statement that the change of the database lost nothing.

    Before the daemons start it replaces what they would notice: then none of them doubts anything. Raises what an
    unreachable database raises.
    """
    async with after_commit.transaction(connection):
        await identities.known(connection, lock=True)
        await identities.adopt(connection, await identities.read(connection))
        await identities.spoken(connection, lost=False)
        await doubted_rows.take_back(connection)
    rows = await release(connection, catalogue, by=by, reason=reason)
    record = await (await connection.execute(STILL_DOUBTED)).fetchone()
    return Released(rows, record[0] if record else 0)


async def release(connection: AsyncConnection[Any], catalogue: Catalogue, *, by: str, reason: str) -> int:
    """Restore the rows that nothing has changed since; returns how many of them were unknown.

    Queued rows go back to the queue, and rows that would have been redriven automatically are redriven. Rows that
    rested stay at rest: their client learnt that nothing happened, and may have paid in another way. Rows with
    contradicting proofs stay, and so do rows of an earlier `idem recover --lost`. Rows that another session locks are
    left as they are.
    """
    released, after = 0, FIRST_ID
    details = {"by": by, "reason": reason}
    evidence = Evidence("operator", "recovered_lossless", details=details)
    while True:
        async with after_commit.transaction(connection):
            cursor = records(connection)
            found = await (await cursor.execute(QUARANTINED, {"after": after, "limit": BATCH})).fetchall()
            if not found:
                break
            was = {record.id: record.was for record in found}
            after = found[-1].id
            locked = [found.row for found in await read_locked(connection, list(was))]
            known = [(row, catalogue.of(row)) for row in locked]
            rows = {row.id: (row, t) for row, t in known if t is not None and not row.contradicted}
            itself = {row_id for row_id in rows if was[row_id] == REDRIVE}
            verdicts = [decide.verdict(row, evidence, terms, redrive=row.id in itself) for row, terms in rows.values()]
            # No event for a row that rests: it had its event before, or rests only within this transaction. A row that
            # would have been redriven had none, so this is its first event if it is no longer redriven.
            rested = await write(
                connection, [c if c.row_id in itself else dataclasses.replace(c, event=None) for c in verdicts]
            )
            released += len(rested)
            queued = [row_id for row_id in rested if row_id not in itself and was[row_id] != OutboxStatus.HELD]
            changes: list[Change] = []
            for at_rest in await read_locked(connection, queued):
                terms = rows[at_rest.row.id][1]
                changes.append(decide.redriven(at_rest.row, evidence, terms, patience=terms.operation.patience))
            await write(connection, changes)
    await connection.execute(BELIEVE, {"details": json.dumps(details)})
    return released
