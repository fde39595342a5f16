"""A step of a flow that has its end, for a proof about it that comes late: held against that end, never applied.

Another step of the flow may be open, and its client or an operator may hold it for minutes: nobody is waited for.
"""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import is_true, records
from idem.outbox.settle.step_columns import STEP_NAME

# The open row first, because a change of it reads the numbers of the events once it has that lock.
LOCK_FLOW = """
WITH call AS MATERIALIZED (
    SELECT r.intent_id AS id FROM idem.requests r WHERE r.outbox_id = %(row)s LIMIT 1
), open_row AS MATERIALIZED (
    SELECT o.id FROM idem.outbox o WHERE o.intent_id = (SELECT c.id FROM call c) FOR UPDATE SKIP LOCKED
), intent AS MATERIALIZED (
    SELECT n.id FROM idem.intents n WHERE n.id = (SELECT c.id FROM call c) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT NOT EXISTS (SELECT FROM call) OR EXISTS (SELECT FROM intent)
       AND NOT EXISTS (SELECT FROM idem.outbox o
                        WHERE o.intent_id = (SELECT c.id FROM call c)
                          AND o.id <> ALL (ARRAY(SELECT w.id FROM open_row w)))
"""


async def lock_flow(connection: AsyncConnection[Any], row_id: UUID) -> bool:
    """Lock the intent of a step, and its open row; False: another session holds one of them."""
    return await is_true(connection, LOCK_FLOW, {"row": row_id})


# `at_rest`: the step has no end, and its row was deleted because its key had expired.
DONE_STEP = f"""
SELECT n.id, coalesce(s.name, {STEP_NAME}) AS step, s.provider_reference, s.object_end,
       coalesce(s.outcome, CASE WHEN n.state = 'failed_retryable'
                                     AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = n.id)
                                THEN 'at_rest' END) AS outcome
  FROM idem.requests r JOIN idem.intents n ON n.id = ANY (ARRAY[r.intent_id])
  LEFT JOIN idem.steps s ON s.outbox_id = ANY (ARRAY[r.outbox_id])
 WHERE r.outbox_id = %(row)s ORDER BY r.generation DESC LIMIT 1
"""  # noqa: S608
END_OF_ITS_OBJECT = "UPDATE idem.steps SET object_end = %(end)s WHERE outbox_id = %(row)s"


async def done_step(connection: AsyncConnection[Any], row_id: UUID) -> Any:
    """What a step has come to, as a record; None: there is no such row. The caller holds the flow's lock."""
    return await (await records(connection).execute(DONE_STEP, {"row": row_id})).fetchone()


async def object_ended(connection: AsyncConnection[Any], row_id: UUID, end: str) -> None:
    """Write the end of the object of a step that ended before it."""
    await connection.execute(END_OF_ITS_OBJECT, {"row": row_id, "end": end})
