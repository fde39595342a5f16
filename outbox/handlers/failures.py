"""Handles a failed handler: retries with back-off, then a dead letter that blocks only its intent."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError

from idem.outbox.database.pool import records
from idem.outbox.domain.states import Reason
from idem.outbox.handlers.queue import WorkItem
from idem.outbox.observe import after_commit
from idem.outbox.observe.logs import error_text
from idem.outbox.settle.record import buried
from idem.outbox.values import storable
from idem.outbox.values.backoff import not_before

CAP = 600.0
"""Seconds between two attempts at the most. 1, 4, 16, 64, 256, 600 and 600: eight attempts take about half an hour."""


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """Why a handler failed, without the event's content. `final`: a retry would do harm."""

    kind: str
    message: str
    final: bool = False


def failure(error: BaseException, *, final: bool = False) -> HandlerFailure:
    """What is kept of an exception of a handler's: its class and what it says, never parameters of statements."""
    match error:
        case DBAPIError() if error.orig is not None:
            return HandlerFailure(type(error.orig).__name__, error_text(error), final)
        case ValidationError():
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            return HandlerFailure("ValidationError", f"the params no longer match the model: {said}"[:500], final)
    return HandlerFailure(type(error).__name__, storable.text(str(error), 500) or error_text(error), final)


_SUBJECT = "format('handler %%s, intent %%s, event %%s', f.handler, f.intent_id, f.number)"
_DETAILS = """
           jsonb_build_object('handler', f.handler, 'intent', f.intent_id, 'number', f.number, 'event', f.event,
                              'attempts', f.failures + 1, 'error', %(kind)s::text, 'message', %(message)s::text)"""
FAIL = f"""
WITH failed AS MATERIALIZED (
    SELECT w.*, w.failures + 1 >= %(attempts)s OR %(final)s AS stops,
           (SELECT e.type FROM idem.events e WHERE e.aggregateid = w.intent_id AND e.number = w.number) AS event
      FROM idem.handler_work w
     WHERE w.handler = %(handler)s AND w.intent_id = %(intent)s AND w.number = %(number)s AND w.dead_letter_id IS NULL
       FOR UPDATE
), buried AS (
    {buried(Reason.HANDLER_FAILED, "failed f WHERE f.stops", subject=_SUBJECT, details=_DETAILS)}
), next AS MATERIALIZED (
    SELECT f.handler, f.intent_id, f.number, f.failures + 1 AS failures, f.stops, (SELECT b.id FROM buried b) AS letter,
           CASE WHEN f.stops THEN 'infinity'::timestamptz
                ELSE statement_timestamp()
                     + make_interval(secs => least(%(cap)s, power(4, f.failures)) * %(spread)s) END AS due_at
      FROM failed f
), moved AS (
    UPDATE idem.handler_work w
       SET due_at    = CASE WHEN w.number = n.number THEN n.due_at ELSE greatest(w.due_at, n.due_at) END,
           failures  = CASE WHEN w.number = n.number THEN n.failures ELSE w.failures END,
           dead_letter_id = CASE WHEN w.number = n.number THEN n.letter ELSE w.dead_letter_id END
      FROM next n WHERE w.handler = ANY (ARRAY[n.handler]) AND w.intent_id = n.intent_id AND w.number >= n.number
)
SELECT n.failures, n.stops, n.letter FROM next n
"""  # noqa: S608


async def fail(connection: AsyncConnection[Any], item: WorkItem, why: HandlerFailure, *, attempts: int) -> bool | None:
    """Keep a failure: due again later, or after so many attempts a dead letter. Whether it stopped; None: it is done.

    The intent's later events wait as long. Raises one of REFUSED where the row is still locked by what has failed.
    """
    cursor = records(connection)
    async with after_commit.transaction(connection):
        await cursor.execute(
            FAIL,
            {
                "handler": item.handler, "intent": item.intent, "number": item.number, "attempts": attempts,
                "final": why.final, "kind": why.kind, "message": why.message, "cap": CAP, "spread": not_before(1.0),
            },
        )  # fmt: skip
        row = await cursor.fetchone()
        if row is not None and row.stops:
            after_commit.emit(connection, partial(after_commit.dead_letter, item.intent, Reason.HANDLER_FAILED))
    return None if row is None else bool(row.stops)


DROP = """
DELETE FROM idem.handler_work w
 WHERE w.handler = %(handler)s AND w.intent_id = %(intent)s AND w.number = %(number)s
   AND (EXISTS (SELECT FROM idem.handled_events m
                 WHERE m.event_id = ANY (ARRAY[w.event_id]) AND m.handler = w.handler)
        OR NOT EXISTS (SELECT FROM idem.events e
                        WHERE e.aggregateid = ANY (ARRAY[w.intent_id]) AND e.number = w.number))
"""


async def drop(connection: AsyncConnection[Any], item: WorkItem) -> None:
    """Take away work whose event has its mark already, or is past its retention."""
    await connection.execute(DROP, {"handler": item.handler, "intent": item.intent, "number": item.number})
