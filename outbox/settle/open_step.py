"""The open step of a flow, for whoever renders what a proof about it means for the client. No lock is taken: what the
answer is made of, the plan and the ends of the steps before, stays as it is for as long as the row is there."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.outbox_row import OutboxRow, outbox_row
from idem.outbox.settle.step_columns import step_columns

OPEN_STEP = f"""
SELECT o.id, o.intent_id, o.operation, o.provider, o.account, o.status, n.state, o.claim_token AS token, o.attempt,
       o.provider_key::text AS provider_key, o.step, n.version,
       {step_columns("o")}
  FROM idem.outbox o JOIN idem.intents n ON n.id = ANY (ARRAY[o.intent_id])
 WHERE o.id = %(row)s
"""  # noqa: S608


async def open_step(connection: AsyncConnection[Any], row_id: UUID) -> OutboxRow | None:
    """The row of a step; None: the step has ended, and a proof about it is only compared."""
    found = await (await records(connection).execute(OPEN_STEP, {"row": row_id})).fetchone()
    return None if found is None else outbox_row(found)
