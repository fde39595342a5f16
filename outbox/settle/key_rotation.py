"""A new generation of a row's provider key, for a key that the provider has burned (hazard 10).

The provider keeps a failure under the key for ever, or was told to cancel it: whatever is sent again under it gets the
same answer. A new key removes the only protection against a send of ours that is still under way, so it is made only
when every attempt under the old one is proven not executed and none of them can act any more.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true, records
from idem.outbox.domain import keys
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.values.errors import OperatorRefused


@dataclass(frozen=True, slots=True)
class Renewal:
    """The next provider key of a row."""

    key: UUID
    generation: int

    def details(self, row: OutboxRow) -> dict[str, str]:
        """What is written down about the change of keys."""
        return {"new_provider_key": str(self.key), "old_provider_key": row.provider_key}


WANTED = """
SELECT n.tenant_id, n.idempotency_key, o.generation, i.secret
  FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id]) CROSS JOIN idem.installation i
 WHERE o.id = %(id)s
"""


async def following(connection: AsyncConnection[Any], row: OutboxRow) -> Renewal:
    """The next provider key of a locked row; nothing is written. It is derived, so that asking again gives the same."""
    wanted = await (await records(connection).execute(WANTED, {"id": row.id})).fetchone()
    assert wanted is not None
    generation = wanted.generation + 1
    key = keys.provider_key(
        bytes(wanted.secret), wanted.tenant_id, row.operation, wanted.idempotency_key, row.step, generation
    )
    return Renewal(key, generation)


IS_VOID = """
SELECT EXISTS (SELECT FROM idem.requests r
                WHERE r.outbox_id = %(row)s AND r.provider_key = %(key)s
                  AND (EXISTS (SELECT FROM idem.requests q
                                WHERE q.outbox_id = r.outbox_id AND q.generation > r.generation)
                       OR EXISTS (SELECT FROM idem.outbox o
                                   WHERE o.id = r.outbox_id
                                     AND (o.cancel_sent OR o.status = 'unfrozen' AND o.key_burned))))
"""


async def is_void(connection: AsyncConnection[Any], row_id: UUID, key: UUID) -> bool:
    """Whether everything under this provider key of a row is proven not executed, or was told to be cancelled: there is
    a later key, or a worker is about to make one.

    A refusal under it says nothing new then: it is the provider's answer to our own cancel.
    """
    return await is_true(connection, IS_VOID, {"row": row_id, "key": key})


IS_CANCELLED = """
SELECT EXISTS (SELECT FROM idem.outbox o
                WHERE o.id = %(row)s
                  AND (o.cancel_sent AND o.provider_key = coalesce(%(key)s::uuid, o.provider_key)
                       OR EXISTS (SELECT FROM idem.evidence e
                                   WHERE e.intent_id = o.intent_id
                                     AND e.details ->> 'cancelled_key'
                                         = coalesce(%(key)s::text, e.details ->> 'cancelled_key'))))
"""


async def is_cancelled(connection: AsyncConnection[Any], row_id: UUID, key: UUID | None) -> bool:
    """Whether the provider was told to cancel what was sent under this key of an open row (None: any of its).

    What was seen under it before then need not stand any more.
    """
    return await is_true(connection, IS_CANCELLED, {"row": row_id, "key": key})


IS_UNDONE = """
SELECT EXISTS (SELECT FROM idem.outbox o WHERE o.id = %(row)s AND o.cancel_sent)
    OR EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = (SELECT r.intent_id FROM idem.requests r WHERE r.outbox_id = %(row)s LIMIT 1)
                  AND e.outbox_id = %(row)s AND e.attempt > %(attempt)s AND e.details ? 'cancelled_key')
"""


async def is_undone(connection: AsyncConnection[Any], row_id: UUID, attempt: int) -> bool:
    """Whether the provider was told to cancel what this attempt of a row has made, after it was made."""
    return await is_true(connection, IS_UNDONE, {"row": row_id, "attempt": attempt})


REKEY = """
UPDATE idem.outbox
   SET generation = %(generation)s, provider_key = %(key)s, key_burned = false, cancel_sent = false,
       denied_sent_at = NULL,
       sent_as = NULL
 WHERE id = %(id)s AND status = 'unfrozen' AND key_burned AND generation = %(generation)s - 1
   AND (quiet_after IS NULL OR quiet_after <= statement_timestamp())
RETURNING id
"""


async def rekey(connection: AsyncConnection[Any], row_id: UUID, renewal: Renewal) -> None:
    """Give a locked row its next provider key; its request must be frozen under it in the same transaction.

    Earlier keys stay known: proofs under them still find the row. Raises OperatorRefused while an attempt under the old
    key may still act.
    """
    written = {"id": row_id, "key": renewal.key, "generation": renewal.generation}
    if await (await connection.execute(REKEY, written)).fetchone() is None:
        raise OperatorRefused(
            "an attempt under the old provider key may still have an effect (quiet_after): wait until that time has "
            "passed"
        )
