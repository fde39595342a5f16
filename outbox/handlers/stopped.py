"""Events of a stopped handler: an operator runs it again, or skips the event."""

from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

RESUME = """
WITH stopped AS MATERIALIZED (
    SELECT w.handler, w.intent_id, w.number FROM idem.handler_work w WHERE w.dead_letter_id = %(letter)s FOR UPDATE
), moved AS (
    UPDATE idem.handler_work w
       SET due_at    = statement_timestamp(),
           dead_letter_id = NULL,
           failures  = CASE WHEN w.number = s.number THEN 0 ELSE w.failures END
      FROM stopped s WHERE w.handler = ANY (ARRAY[s.handler]) AND w.intent_id = s.intent_id AND w.number >= s.number
)
SELECT s.intent_id FROM stopped s
"""


async def resume(connection: AsyncConnection[Any], letter: UUID) -> UUID | None:
    """Put the event of this dead letter back to work, and the later ones behind it; its intent, None if it is gone."""
    found = await (await connection.execute(RESUME, {"letter": letter})).fetchone()
    return found[0] if found else None


SKIP = """
WITH stopped AS MATERIALIZED (
    SELECT w.handler, w.intent_id, w.number, w.event_id FROM idem.handler_work w
     WHERE w.dead_letter_id = %(letter)s FOR UPDATE
), gone AS (
    DELETE FROM idem.handler_work w USING stopped s
     WHERE w.handler = ANY (ARRAY[s.handler]) AND w.intent_id = s.intent_id AND w.number = s.number
), marked AS (
    INSERT INTO idem.handled_events (event_id, handler, skipped) SELECT s.event_id, s.handler, true FROM stopped s
        ON CONFLICT DO NOTHING
), moved AS (
    UPDATE idem.handler_work w SET due_at = statement_timestamp()
      FROM stopped s WHERE w.handler = ANY (ARRAY[s.handler]) AND w.intent_id = s.intent_id AND w.number > s.number
)
SELECT s.intent_id FROM stopped s
"""


async def skip(connection: AsyncConnection[Any], letter: UUID) -> UUID | None:
    """Mark the event of this dead letter as skipped, and let the later ones go on; its intent, None if it is gone."""
    found = await (await connection.execute(SKIP, {"letter": letter})).fetchone()
    return found[0] if found else None
