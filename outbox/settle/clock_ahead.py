"""Sends whose moment is not known: the database's clock was ahead when they were written, and went back since.

A moment of the past that lies ahead of the clock counts as not known while it does (`idem.is_ahead`). When the clock
has passed it, it would look like any other, and the provider's memory would seem younger than it is. So the sweeper
marks it before: it becomes `NEVER`, which no clock passes, until the call is settled or has a new key.

Leases, due times and quiet times that were written then are left alone. Whether the clock was ahead or is behind now,
a row does not say, and to shorten them would be wrong in the second case; `idem doctor` shows them.
"""

from typing import Any

from psycopg import AsyncConnection

from idem.outbox.observe import after_commit
from idem.outbox.settle.change_pages import Place
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.outbox.settle.record import noted

NEVER = "timestamptz '9999-01-01 00:00+00'"
"""Stands for a moment that is not known, in the columns that the provider's memory counts from."""

# The expression of the index `outbox_sent_ahead`.
NEWEST = (
    f"greatest(nullif(o.first_sent_at, {NEVER}), nullif(o.doubted_since, {NEVER}), nullif(o.denied_sent_at, {NEVER}))"
)

SENT_AHEAD = f"""
SELECT o.id, {NEWEST}
  FROM idem.outbox o
 WHERE idem.is_ahead({NEWEST})
   AND ({NEWEST}, o.id) > (%(at)s, %(row)s)
 ORDER BY {NEWEST}, o.id
 LIMIT %(batch)s
"""  # noqa: S608

_AHEAD = noted(
    "sweeper", "sent_ahead", "marked m JOIN locked l ON l.id = m.id JOIN intents n ON n.id = m.intent_id",
    intent_id="m.intent_id", outbox_id="m.id", step="m.step", attempt="m.attempt", from_state="n.state",
    to_state="n.state", from_status="m.status", to_status="m.status",
    details="""jsonb_strip_nulls(jsonb_build_object(
           'why', 'the database''s clock was ahead when this was written, or has gone back since',
           'first_sent_at', l.first_sent_at, 'doubted_since', l.doubted_since, 'denied_sent_at', l.denied_sent_at))""",
)  # fmt: skip
# The row alone is changed, and neither its claim nor its attempt: who works with it goes on. What another session holds
# comes in the next pass.
MARK = f"""
WITH locked AS MATERIALIZED (
    SELECT o.id, o.intent_id, o.first_sent_at, o.doubted_since, o.denied_sent_at
      FROM idem.outbox o WHERE o.id = ANY (%(ids)s) ORDER BY o.id FOR UPDATE SKIP LOCKED
), intents AS MATERIALIZED (
    SELECT n.id, n.state FROM locked l JOIN idem.intents n ON n.id = ANY (ARRAY[l.intent_id])
     ORDER BY n.id FOR KEY SHARE OF n SKIP LOCKED
), marked AS (
    UPDATE idem.outbox o
       SET first_sent_at = CASE WHEN idem.is_ahead(o.first_sent_at) THEN {NEVER} ELSE o.first_sent_at END,
           doubted_since = CASE WHEN idem.is_ahead(o.doubted_since) THEN {NEVER} ELSE o.doubted_since END,
           denied_sent_at    = CASE WHEN idem.is_ahead(o.denied_sent_at) THEN {NEVER} ELSE o.denied_sent_at END
     WHERE o.id = ANY (ARRAY(SELECT l.id FROM locked l JOIN intents n ON n.id = l.intent_id))
       AND idem.is_ahead({NEWEST})
       AND NOT {O_IS_LISTED}
    RETURNING o.id, o.intent_id, o.step, o.attempt, o.status
)
{_AHEAD}
RETURNING outbox_id
"""  # noqa: S608


async def mark(connection: AsyncConnection[Any], *, batch: int, place: Place | None = None) -> int:
    """Mark up to `batch` open rows whose first send, doubt or word lies ahead of the clock; how many. One transaction.

    A row that another session holds, or that recovery has still to doubt, is left for the next pass. Raises
    psycopg.Error if the database is away.
    """
    place = place or Place()
    picked = await (await connection.execute(SENT_AHEAD, place.parameters(batch))).fetchall()
    place.move(picked, batch)
    if not picked:
        return 0
    async with after_commit.transaction(connection):
        ids = [record[0] for record in picked]
        return (await connection.execute(MARK, {"ids": ids})).rowcount
