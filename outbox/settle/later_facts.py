"""Later facts (refund, dispute, bounce): kept in the timeline and emitted once. They change no state.

They prove no end, but that the object is there: while its call may still be sent, that is a contradiction.
"""

from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.domain.outcomes import Fields
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.record import emit, note
from idem.outbox.values import storable

LaterFactEnd: TypeAlias = Literal["emitted", "early", "open", "locked"]
"""early: the call's end is not known yet, and no event may come before it. open: the same, and by what we
know the provider may not have its object at all. locked: another session holds the intent or its row."""

# Under the locks of both, because events are numbered, and a change of the row reads the numbers once it has that lock.
# No other transaction is waited for.
LOCK_ROWS = """
WITH ours AS MATERIALIZED (
    SELECT o.id, o.status FROM idem.outbox o WHERE o.intent_id = %(intent)s FOR UPDATE SKIP LOCKED
)
SELECT (SELECT c.status FROM ours c WHERE c.id = %(row)s) AS call,
       EXISTS (SELECT FROM idem.outbox o
                WHERE o.intent_id = %(intent)s AND o.id <> ALL (ARRAY(SELECT c.id FROM ours c))) AS locked
"""
LOCK_INTENT = """
SELECT n.state IN ('completed', 'failed_retryable')
       OR n.plan IS NOT NULL AND EXISTS (SELECT FROM idem.steps s WHERE s.outbox_id = %(row)s) AS has_ended
  FROM idem.intents n WHERE n.id = %(intent)s FOR NO KEY UPDATE SKIP LOCKED
"""


async def record_fact(
    connection: AsyncConnection[Any],
    row_id: UUID,
    intent_id: UUID,
    evidence: Evidence,
    *,
    token: UUID,
    status: str | None,
    fields: Fields,
    recorded: bool = False,
    explained: bool = False,
    step: str | None = None,
) -> LaterFactEnd:
    """Keep a later fact as evidence, unless it is `recorded` already, and emit it as an event of its intent, in the
    caller's transaction.

    A call that has not come to an end gets no event yet: come again. The end of a step of a flow is enough, whatever
    became of the flow since; its name (`step`) is told. `explained`: it contradicts nothing. We
    have told the provider to cancel the object, so that it may be the echo of that; or the provider was asked, and
    what it has shown is the end of something under a key that is not in use any more.
    """
    rows = await (await connection.execute(LOCK_ROWS, {"intent": intent_id, "row": row_id})).fetchone()
    assert rows is not None
    call, locked = rows
    if locked:
        return "locked"
    found = await (await connection.execute(LOCK_INTENT, {"intent": intent_id, "row": row_id})).fetchone()
    if found is None:
        return "locked"
    if not recorded:
        await note(connection, row_id, evidence, token=token)
    # The provider's own word stands behind an `awaiting` row: its object is there.
    if call not in (None, OutboxStatus.AWAITING) and not explained:
        return "open"
    if not found[0]:
        return "early"
    said = None if status is None else storable.text(status, 100)
    more = {"status": said, "fields": fields, "details": evidence.details} | ({"step": step} if step else {})
    await emit(connection, intent_id, "later_fact", more, reference=evidence.reference)
    return "emitted"
