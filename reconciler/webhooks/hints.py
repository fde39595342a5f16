"""Events that idem fetches before it believes them: a hint stays beside its row until the provider has answered.

It is kept where proofs wait, so that no claim, retry, redrive or cancel passes it (hazard 53). It proves nothing, so it
is never folded. `idem.reconciler.webhooks.fetching` asks the provider.
"""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true
from idem.outbox.domain.completion import is_open
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Refused
from idem.outbox.domain.webhook import Event
from idem.outbox.values import storable


def is_due(contract: Contract, event: Event, *, out_of_time: bool) -> bool:
    """Whether idem asks the provider about this event: its contract wants it, or the event came `out_of_time`.

    Not if the event says nothing: no end, no beginning, and no change of one of our objects. A later fact changes no
    state, so idem emits it as it came, unless its call is open (`idem.outbox.settle.later_facts`).
    """
    return (contract.event_rule.fetch or out_of_time) and not event.later and (event.said is not None or event.bare)


# Needs no lock on the row, and may come a second time.
KEEP = """
INSERT INTO idem.proofs (id, outbox_id, intent_id, step, source, outcome, reference)
SELECT %(id)s, r.outbox_id, r.intent_id, r.step, 'webhook', 'hint', %(reference)s
  FROM idem.requests r WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1
    ON CONFLICT DO NOTHING
"""


async def keep(connection: AsyncConnection[Any], event_row: UUID, row_id: UUID, event: Event) -> None:
    """Store the hint of an event beside the row that it is about."""
    reference = None if event.reference is None else storable.text(event.reference, 500)
    await connection.execute(KEEP, {"id": event_row, "row": row_id, "reference": reference})


DROP = "DELETE FROM idem.proofs WHERE id = %(id)s AND outcome = 'hint'"


async def drop(connection: AsyncConnection[Any], event_row: UUID) -> None:
    """Take the hint of an event away: what it said is known now."""
    await connection.execute(DROP, {"id": event_row})


ANSWERED = """
SELECT EXISTS (SELECT FROM idem.proofs p WHERE p.id = %(id)s AND p.outcome <> 'hint'),
       EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = %(intent)s AND e.token = %(id)s AND e.kind = 'fetched')
"""


async def answered(connection: AsyncConnection[Any], event_row: UUID, intent_id: UUID) -> tuple[bool, bool]:
    """Of an event that the provider was asked about: whether what it has shown is stored beside the row, and whether it
    was no news of that row."""
    record = await (await connection.execute(ANSWERED, {"id": event_row, "intent": intent_id})).fetchone()
    assert record is not None
    return bool(record[0]), bool(record[1])


ENDED_WITH = """
SELECT n.outcome, n.provider_reference, n.object_end
  FROM idem.intents n
 WHERE n.id = %(intent)s AND n.state = 'completed' AND n.plan IS NULL
   AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = n.id)
 UNION ALL
SELECT s.outcome, s.provider_reference, s.object_end FROM idem.steps s WHERE s.outbox_id = %(row)s
"""


async def is_old_news(connection: AsyncConnection[Any], intent_id: UUID, row_id: UUID, event: Event) -> bool:
    """Whether an event says no more than what its call has ended with: believed or not, it changes nothing."""
    said = event.said
    if said is None:
        return False
    known = await (await connection.execute(ENDED_WITH, {"intent": intent_id, "row": row_id})).fetchone()
    if known is None:
        return False
    outcome, reference, end = known
    if reference is None or said.reference != reference:
        return False
    if is_open(said):
        return bool(outcome == "succeeded")
    if isinstance(said, Refused):
        return bool(outcome == "refused" or end == "refused")
    return bool(outcome == "succeeded" and end in (None, "succeeded"))


WAS_EMITTED = """
SELECT EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = %(intent)s AND e.kind = 'later_fact' AND e.token <> %(id)s
                  AND e.details ->> 'event' = %(event)s)
"""


async def was_emitted(connection: AsyncConnection[Any], event_row: UUID, intent_id: UUID, event_id: str) -> bool:
    """Whether an earlier row of this event has told its later fact.

    Events are kept for less long than evidence: a recorded one may come again when its own row is gone.
    """
    about = {"id": event_row, "intent": intent_id, "event": event_id}
    return await is_true(connection, WAS_EMITTED, about)
