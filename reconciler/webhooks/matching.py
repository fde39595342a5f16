"""Which call an event is about: by our provider key, an earlier one too, or by the provider's own reference."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.webhook import Event
from idem.outbox.settle.open_step import open_step
from idem.outbox.settle.step_columns import REFERENCE_OF_STEP, STEP_NAME


@dataclass(frozen=True, slots=True)
class MatchedCall:
    """The call: its outbox row, which may have left, and its intent. A row is one step of its intent (hazard 57).

    `path`: of its request. `step`: its name, of a flow; `open_row`: its row as it was read, if the step has not ended.
    """

    row_id: UUID
    intent_id: UUID
    operation: str
    path: str = ""
    step: str | None = None
    open_row: OutboxRow | None = None


# The key of an expired intent may be used anew after its tombstone: then the event's reference says which is meant. The
# references of a flow are those of its steps.
BY_KEY = f"""
SELECT r.outbox_id AS row_id, r.intent_id, n.operation, r.path, {STEP_NAME} AS step
  FROM idem.requests r JOIN idem.intents n ON n.id = ANY (ARRAY[r.intent_id])
 WHERE r.provider = %(provider)s AND r.account = %(account)s AND r.provider_key = %(key)s
 ORDER BY CASE WHEN n.plan IS NULL THEN n.provider_reference ELSE {REFERENCE_OF_STEP} END
          IS NOT DISTINCT FROM %(reference)s DESC, r.outbox_id DESC
 LIMIT 1
"""  # noqa: S608

# Of one call the evidence says that the reference is that of its row. Of a flow the ends of the steps have it, and the
# open row. OFFSET keeps the planner from reading every request of the account instead of those of the intent.
BY_REFERENCE = """
SELECT DISTINCT r.outbox_id AS row_id, r.intent_id, n.operation, r.path, NULL::text AS step
  FROM idem.intents n
 CROSS JOIN LATERAL (SELECT q.* FROM idem.requests q WHERE q.intent_id = n.id OFFSET 0) r
 WHERE n.provider = %(provider)s AND n.account = %(account)s AND n.provider_reference = %(reference)s
   AND r.provider = %(provider)s AND r.account = %(account)s
   AND (SELECT e.id FROM idem.evidence e
         WHERE e.intent_id = n.id AND e.outbox_id = r.outbox_id AND e.provider_reference = %(reference)s
         LIMIT 1) IS NOT NULL
 UNION ALL
SELECT f.outbox_id, f.intent_id, (SELECT i.operation FROM idem.intents i WHERE i.id = f.intent_id), r.path, f.name
  FROM (SELECT s.outbox_id, s.intent_id, s.name FROM idem.steps s
         WHERE s.provider = %(provider)s AND s.account = %(account)s AND s.provider_reference = %(reference)s
         UNION ALL
        SELECT o.id, o.intent_id, o.step_name FROM idem.outbox o
         WHERE o.step_name IS NOT NULL
           AND o.provider = %(provider)s AND o.account = %(account)s AND o.provider_reference = %(reference)s) AS f
 CROSS JOIN LATERAL (SELECT q.path FROM idem.requests q WHERE q.outbox_id = f.outbox_id
                      ORDER BY q.generation DESC LIMIT 1) AS r
 LIMIT 2
"""


async def match(connection: AsyncConnection[Any], provider: str, account: str, event: Event) -> MatchedCall | None:
    """The call that the event is about, among those of this account alone (hazard 18).

    None: there is none yet; or a reference that two calls share, which is no match of either.
    """
    cursor = records(connection)
    about = {"provider": provider, "account": account, "reference": event.reference}
    for key in map(provider_key, event.keys):
        found = None if key is None else await (await cursor.execute(BY_KEY, {**about, "key": key})).fetchone()
        if found is not None:
            return await _matched(connection, found)
    if event.reference is None:
        return None
    several = await (await cursor.execute(BY_REFERENCE, about)).fetchall()
    return await _matched(connection, several[0]) if len(several) == 1 else None


async def _matched(connection: AsyncConnection[Any], found: Any) -> MatchedCall:
    return await with_step(connection, MatchedCall(*found))


async def with_step(connection: AsyncConnection[Any], call: MatchedCall) -> MatchedCall:
    """The call with its open row, where it is a step of a flow: what its answer is made of."""
    return call if call.step is None else replace(call, open_row=await open_step(connection, call.row_id))


def provider_key(text: str | None) -> UUID | None:
    """What an event carries as our key, if it can be one: all of ours are UUIDs."""
    try:
        return None if text is None or len(text) > 45 else UUID(text)
    except ValueError:
        return None
