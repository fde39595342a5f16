"""Events that wait, looked at again: those that no call was known for, and those that could not be applied."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox import moves, storable, telemetry
from idem.outbox.answers import Renderer
from idem.outbox.catalogue import Catalogue
from idem.outbox.contract import Event
from idem.outbox.database import AWAY, Database, records
from idem.outbox.states import Reason
from idem.reconciler.webhooks import applying
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.ingest import FIRST_TRY, decide
from idem.reconciler.webhooks.matching import match

LEASE: Final = 60.0
"""Seconds for which a taken event is nobody else's; longer than an answer may take to render."""

YOUNG: Final = 86400.0
DAILY: Final = 86400.0
"""Seconds for which an unmatched event is looked at by time: an accept that commits late, or a restored one. After
that it waits for its reference to be written."""

SLOWEST: Final = 3600.0
"""Seconds at most between two tries."""

FAILURES_THAT_NEED_A_PERSON: Final = 3


@dataclass(frozen=True, slots=True)
class Waiting:
    """A taken event. `tries`: how often it could not be applied, this try included; `age` in seconds."""

    id: UUID
    provider: str
    account: str
    event_id: str
    verdict: str
    tries: int
    age: float
    intent_id: UUID | None
    body: bytes | None


# Taking an event counts as a failure until it is decided, so that one which kills its process is noticed too.
TAKE = """
WITH due AS MATERIALIZED (
    SELECT d.id FROM idem.webhook_events d
     WHERE d.retry_at <= statement_timestamp() AND d.provider = ANY (%(providers)s)
     ORDER BY d.retry_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE idem.webhook_events w
       SET retry_at = statement_timestamp() + make_interval(secs => %(lease)s),
           tries    = w.tries + CASE w.verdict WHEN 'deferred' THEN 1 ELSE 0 END
     WHERE w.id = ANY (ARRAY(SELECT id FROM due))
    RETURNING w.id, w.provider, w.account, w.event_id, w.verdict, w.tries, w.intent_id, w.received_at
)
SELECT t.id, t.provider, t.account, t.event_id, t.verdict, t.tries, t.intent_id,
       extract(epoch FROM statement_timestamp() - t.received_at)::float8 AS age,
       (SELECT b.body FROM idem.webhook_bodies b WHERE b.webhook_event_id = t.id) AS body
  FROM taken t
"""


async def look_again(database: Database, catalogue: Catalogue, renderer: Renderer, *, limit: int) -> int:
    """Try every event that is due, `limit` at a time; how many found their end. Raises AWAY."""
    providers = [name for name, provider in catalogue.providers.items() if provider.webhook is not None]
    done = 0
    while providers:
        async with database.connection() as connection:
            wanted = {"providers": providers, "limit": limit, "lease": LEASE}
            rows = await (await records(connection).execute(TAKE, wanted)).fetchall()
        for row in rows:
            waiting = Waiting(**{**row._asdict(), "body": None if row.body is None else bytes(row.body)})
            try:
                done += await _try(database, catalogue, renderer, waiting)
            except AWAY:
                raise
            except Exception as error:  # one event must never stop the others
                telemetry.broken("reconciler", error, f"looking again at event {waiting.id}")
                async with database.connection() as connection:
                    await _failed(connection, waiting, f"{type(error).__name__}: {error}"[:500])
        if len(rows) < limit:
            break
    return done


async def _try(database: Database, catalogue: Catalogue, renderer: Renderer, waiting: Waiting) -> int:
    provider = catalogue.providers[waiting.provider]
    event: Event | None = None if waiting.body is None else provider.read_event(waiting.body)
    async with database.connection() as connection:
        found = None if event is None else await match(connection, waiting.provider, waiting.account, event)
        if event is None or found is None:
            await decide(connection, waiting.id, "unmatched", None, again=_next_look(waiting, event))
            return 0
    delivery = Delivery(waiting.provider, waiting.account, waiting.event_id, event)
    what = await applying.ready(catalogue, renderer, delivery, found)
    async with database.connection() as connection, moves.transaction(connection):
        if not await _still_waits(connection, waiting):
            return 0
        verdict, error = await applying.settle(connection, waiting.id, what)
        if error is not None:
            # From unmatched to deferred: this was its first failure.
            tries = max(waiting.tries, 1)
            failed = waiting.verdict != "deferred"
            await decide(connection, waiting.id, "deferred", what, again=_pause(tries), failed=failed)
            await _bury(connection, dataclasses.replace(waiting, intent_id=found.intent_id, tries=tries), error)
            return 0
        await decide(connection, waiting.id, verdict, what, again=None)
        await connection.execute(CLOSE, {"id": waiting.id, "how": verdict})
    telemetry.webhook(waiting.provider, waiting.account, verdict)
    return 1


STILL_WAITS = """
SELECT w.id FROM idem.webhook_events w
 WHERE w.id = %(id)s AND w.verdict = %(verdict)s AND w.tries = %(tries)s FOR UPDATE SKIP LOCKED
"""


async def _still_waits(connection: AsyncConnection[Any], waiting: Waiting) -> bool:
    guard = {"id": waiting.id, "verdict": waiting.verdict, "tries": waiting.tries}
    return await (await connection.execute(STILL_WAITS, guard)).fetchone() is not None


def _next_look(waiting: Waiting, event: Event | None) -> float | None:
    """Seconds until an unmatched event is looked at again: a quarter of its age, so at each tick while it is young.

    An old one is looked at once a day: what wakes it passes by a row that is locked at that moment.
    """
    if event is None:
        return None
    if waiting.age > YOUNG:
        return DAILY
    return min(max(FIRST_TRY, waiting.age / 4), SLOWEST)


def _pause(tries: int) -> float:
    return float(min(FIRST_TRY * 4 ** min(tries, 10), SLOWEST))


FAILED = """
UPDATE idem.webhook_events SET retry_at = statement_timestamp() + make_interval(secs => %(again)s) WHERE id = %(id)s
   AND retry_at IS NOT NULL
"""


async def _failed(connection: AsyncConnection[Any], waiting: Waiting, error: str) -> None:
    async with moves.transaction(connection):
        await connection.execute(FAILED, {"id": waiting.id, "again": _pause(max(waiting.tries, 1))})
        await _bury(connection, waiting, error)


BURY_EVENT = """
INSERT INTO idem.dead_letters AS d (intent_id, webhook_event_id, reason, details)
VALUES (%(intent)s, %(id)s, %(reason)s, %(details)s::jsonb)
    ON CONFLICT (intent_id, reason) WHERE resolved_at IS NULL DO UPDATE SET seen = d.seen + 1
RETURNING d.seen
"""
CLOSE = """
UPDATE idem.dead_letters
   SET resolved_at = statement_timestamp(), resolution = 'webhook_' || %(how)s::text, resolved_by = current_user,
       note = 'the event could be applied after all'
 WHERE webhook_event_id = %(id)s AND resolved_at IS NULL
"""


async def _bury(connection: AsyncConnection[Any], waiting: Waiting, error: str) -> None:
    """The dead letter of an event that has failed often enough. It is tried on: what failed may be mended."""
    if waiting.intent_id is None or waiting.tries < FAILURES_THAT_NEED_A_PERSON:
        return
    details = {
        "handler": f"webhook of {waiting.provider}/{waiting.account}",
        "event": waiting.event_id,
        "tries": waiting.tries,
        "error": error,
    }
    buried = await connection.execute(
        BURY_EVENT,
        {
            "intent": waiting.intent_id,
            "id": waiting.id,
            "reason": Reason.HANDLER_FAILED,
            "details": json.dumps(storable.fields(details)),
        },
    )
    if await buried.fetchone() == (1,):
        moves.tell(connection, partial(moves.dead_letter, waiting.intent_id, Reason.HANDLER_FAILED))
