"""Which call an event is about: by our provider key, an earlier one too, or by the provider's own reference."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.webhook import Event


@dataclass(frozen=True, slots=True)
class MatchedCall:
    """The call: its outbox row, which may have left, and its intent. A row is one step of its intent (hazard 57).

    `path`: of its request.
    """

    row_id: UUID
    intent_id: UUID
    operation: str
    path: str = ""


# The key of an expired intent may be used anew after its tombstone: then the event's reference says which is meant.
BY_KEY = """
SELECT r.outbox_id AS row_id, r.intent_id, n.operation, r.path
  FROM idem.requests r JOIN idem.intents n ON n.id = r.intent_id
 WHERE r.provider = %(provider)s AND r.account = %(account)s AND r.provider_key = %(key)s
 ORDER BY n.provider_reference IS NOT DISTINCT FROM %(reference)s DESC, r.outbox_id DESC
 LIMIT 1
"""

# The evidence says which step the reference belongs to: the intent has that of its last one. OFFSET keeps the planner
# from reading every request of the account instead of those of the intent.
BY_REFERENCE = """
SELECT DISTINCT r.outbox_id AS row_id, r.intent_id, n.operation, r.path
  FROM idem.intents n
 CROSS JOIN LATERAL (SELECT q.* FROM idem.requests q WHERE q.intent_id = n.id OFFSET 0) r
 WHERE n.provider = %(provider)s AND n.account = %(account)s AND n.provider_reference = %(reference)s
   AND r.provider = %(provider)s AND r.account = %(account)s
   AND EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = n.id AND e.outbox_id = r.outbox_id AND e.provider_reference = %(reference)s)
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
            return MatchedCall(*found)
    if event.reference is None:
        return None
    several = await (await cursor.execute(BY_REFERENCE, about)).fetchall()
    return MatchedCall(*several[0]) if len(several) == 1 else None


def provider_key(text: str | None) -> UUID | None:
    """What an event carries as our key, if it can be one: all of ours are UUIDs."""
    try:
        return None if text is None or len(text) > 45 else UUID(text)
    except ValueError:
        return None
