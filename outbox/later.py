"""Later facts (refund, dispute, bounce): kept in the timeline and told once. They change no state and prove nothing."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox import storable
from idem.outbox.change import Evidence
from idem.outbox.outcomes import Fields
from idem.outbox.proofs import note

Told: TypeAlias = Literal["told", "early", "locked"]
"""early: the call's end is not known yet, and nobody hears what came after it before. locked: somebody holds the
intent or its row."""

# Under the locks of both, because events are numbered, and whoever changes the row reads the numbers once it has that
# lock; nobody's transaction is waited for.
LOCK_ROWS = "SELECT o.id FROM idem.outbox o WHERE o.intent_id = %(intent)s FOR UPDATE SKIP LOCKED"
IS_LOCKED = (
    "SELECT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = %(intent)s AND o.id <> ALL (%(ours)s::uuid[]))"
)
STANDS = "SELECT n.state FROM idem.intents n WHERE n.id = %(intent)s FOR NO KEY UPDATE SKIP LOCKED"
TELL = """
INSERT INTO idem.events (aggregateid, number, type, payload)
SELECT n.id, e.number, 'later_fact',
       jsonb_build_object('intent', n.id, 'number', e.number, 'tenant', n.tenant_id, 'operation', n.operation,
                          'label', n.label, 'state', n.state, 'outcome', n.outcome,
                          'provider_reference', coalesce(%(reference)s::text, n.provider_reference),
                          'status', %(status)s::text, 'fields', %(fields)s::jsonb, 'details', %(details)s::jsonb)
  FROM idem.intents n CROSS JOIN LATERAL (
       SELECT 1 + coalesce(max(v.number), 0) AS number FROM idem.events v WHERE v.aggregateid = n.id) AS e
 WHERE n.id = %(intent)s
"""


async def tell(
    connection: AsyncConnection[Any],
    row_id: UUID,
    intent_id: UUID,
    evidence: Evidence,
    *,
    token: UUID,
    status: str | None,
    fields: Fields,
    recorded: bool = False,
) -> Told:
    """Keep a later fact as evidence, unless it is `recorded` already, and tell it as an event of its intent, in the
    caller's transaction.

    An intent that has not come to an end gets no event yet: come again.
    """
    rows = await (await connection.execute(LOCK_ROWS, {"intent": intent_id})).fetchall()
    ours = {"intent": intent_id, "ours": [row[0] for row in rows]}
    if (locked := await (await connection.execute(IS_LOCKED, ours)).fetchone()) and locked[0]:
        return "locked"
    stands = await (await connection.execute(STANDS, {"intent": intent_id})).fetchone()
    if stands is None:
        return "locked"
    if not recorded:
        await note(connection, row_id, evidence, token=token)
    if stands[0] not in ("completed", "failed_retryable"):
        return "early"
    said = {
        "intent": intent_id,
        "reference": None if evidence.reference is None else storable.text(evidence.reference, 500),
        "status": None if status is None else storable.text(status, 100),
        "fields": json.dumps(storable.fields(dict(fields))),
        "details": json.dumps(storable.fields(dict(evidence.details))),
    }
    await connection.execute(TELL, said)
    return "told"
