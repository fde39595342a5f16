"""Receiving a verified event: one transaction stores it and does what it says, or nothing of it is there."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import Database, is_true
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.values import storable
from idem.reconciler.webhooks import applying, hints, waiting_events
from idem.reconciler.webhooks.applying import EventFate, Ready
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.matching import match

FIRST_TRY: Final = 1.0
"""Seconds after which the reconciler looks again at an event that could not be applied or matched."""

OFTEN_ENOUGH: Final = 3600.0
"""Seconds at most until it looks again at a later fact whose call has not ended."""

LONGEST_TYPE: Final = 200

NOT_KEPT: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Headers that may hold somebody's credentials."""

Found = TypeVar("Found")
Work = Callable[[AsyncConnection[Any]], Awaitable[Found]]


class RunBounded(Protocol):
    """Does a piece of work with a connection, and ends within a bound."""

    def __call__(self, work: Work[Found], /) -> Awaitable[Found]: ...


async def receive(run: RunBounded, catalogue: Catalogue, renderer: Renderer, delivery: Delivery) -> EventFate:
    """Store and apply a verified event; what became of it, when it has committed.

    The answer is rendered between two short uses of a connection: that is user code, and no transaction is open.
    """

    async def find(connection: AsyncConnection[Any]) -> tuple[bool, Any]:
        if await is_known(connection, delivery):
            return True, None
        if not delivery.event.wanted:
            return False, None
        return False, await match(connection, delivery.provider, delivery.account, delivery.event)

    known, found = await run(find)
    if known:
        return _reported(delivery, "duplicate")
    what = None if found is None else await applying.ready(catalogue, renderer, delivery, found)
    return _reported(delivery, await run(lambda connection: store(connection, delivery, what)))


async def receive_all(
    run: RunBounded, catalogue: Catalogue, renderer: Renderer, deliveries: Sequence[Delivery]
) -> tuple[EventFate, ...]:
    """The events of one delivery, one transaction each, in their order.

    Raises what `run` raises: then the delivery is refused, comes again, and what was stored of it is a duplicate.
    """
    return tuple([await receive(run, catalogue, renderer, delivery) for delivery in deliveries])


async def ingest(database: Database, catalogue: Catalogue, renderer: Renderer, delivery: Delivery) -> EventFate:
    """The same for a caller who bounds nothing. Raises what an unreachable database raises."""

    async def run(work: Work[Found], /) -> Found:
        async with database.connection() as connection:
            return await work(connection)

    return await receive(run, catalogue, renderer, delivery)


IS_KNOWN = """
SELECT EXISTS (SELECT FROM idem.webhook_events w
                WHERE w.provider = %(provider)s AND w.account = %(account)s AND w.event_id = %(event)s
                  AND NOT (w.out_of_time AND NOT %(out_of_time)s
                           AND w.fate IN ('unmatched', 'foreign', 'deferred', 'hint', 'unconfirmed')))
"""


async def is_known(connection: AsyncConnection[Any], delivery: Delivery) -> bool:
    """Whether this event was received before: a cheap first check that decides nothing.

    An event that first came out of time and now comes in time says more than before, so it is not known.
    """
    about = {
        "provider": delivery.provider, "account": delivery.account, "event": delivery.event_id,
        "out_of_time": delivery.out_of_time,
    }  # fmt: skip
    return await is_true(connection, IS_KNOWN, about)


INSERT_EVENT = """
INSERT INTO idem.webhook_events (provider, account, event_id, type, reference, fate, place, out_of_time)
VALUES (%(provider)s, %(account)s, %(event)s, %(type)s, %(reference)s, %(fate)s, %(place)s, %(out_of_time)s)
    ON CONFLICT (provider, account, event_id) DO NOTHING RETURNING id
"""
INSERT_BODY = """
INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body) VALUES (%(id)s, %(headers)s::jsonb, %(body)s)
    ON CONFLICT (webhook_event_id) DO UPDATE SET headers = EXCLUDED.headers, body = EXCLUDED.body
"""
# What came out of time, and waits or was not confirmed, begins anew when it comes in time.
CONFIRM = """
UPDATE idem.webhook_events
   SET out_of_time = false, fate = %(fate)s, type = %(type)s, reference = %(reference)s, place = %(place)s,
       retry_at = NULL, tries = 0, absences = 0
 WHERE provider = %(provider)s AND account = %(account)s AND event_id = %(event)s
   AND out_of_time AND fate IN ('unmatched', 'foreign', 'deferred', 'hint', 'unconfirmed')
RETURNING id
"""
# A wake-up that came while the event was looked at is not written over.
WRITE_FATE = """
UPDATE idem.webhook_events
   SET fate   = %(fate)s,
       intent_id = %(intent)s,
       outbox_id = %(row)s,
       tries     = tries + CASE WHEN %(failed)s THEN 1 ELSE 0 END,
       retry_at  = CASE WHEN %(fate)s IN ('unmatched', 'foreign') AND retry_at <= statement_timestamp() THEN retry_at
                        ELSE statement_timestamp() + make_interval(secs => %(again)s) END
 WHERE id = %(id)s AND fate IN ('unmatched', 'deferred', 'hint', 'early', 'foreign')
"""


async def store(connection: AsyncConnection[Any], delivery: Delivery, what: Ready | None) -> EventFate:
    """One transaction: the event, its body, and what it says about its call. Another delivery of it is waited for.

    An event that is known, but came out of time, is taken up again by a delivery in time.
    """
    async with after_commit.transaction(connection):
        event = delivery.event
        about = {
            "provider": delivery.provider,
            "account": delivery.account,
            "event": delivery.event_id,
            "type": None if event.type is None else storable.text(event.type, LONGEST_TYPE),
            "reference": event.reference,
            "fate": "unmatched" if event.wanted else "ignored",
            "place": delivery.place,
            "out_of_time": delivery.out_of_time,
        }
        inserted = await (await connection.execute(INSERT_EVENT, about)).fetchone()
        known = inserted is None
        if known and not delivery.out_of_time:
            inserted = await (await connection.execute(CONFIRM, about)).fetchone()
        if inserted is None:
            return "duplicate"
        row: UUID = inserted[0]
        if known:
            await hints.drop(connection, row)
        body = {"id": row, "headers": json.dumps(_headers(delivery)), "body": delivery.body}
        await connection.execute(INSERT_BODY, body)
        if not event.wanted:
            return "ignored"
        if what is None:
            # Another deployment's tag; idem still tries it once more, because it cannot see what is not committed.
            foreign = event.ours is False
            fate: EventFate = "foreign" if foreign else "unmatched"
            if foreign:
                after_commit.emit(connection, lambda: telemetry.webhook_foreign(delivery.provider, delivery.account))
            await write_fate(connection, row, fate, None, again=FIRST_TRY)
            return fate
        fate, error = await applying.settle(connection, row, what)
        await write_fate(connection, row, fate, what, again=due_again(fate, 0.0), failed=error is not None)
        if known and fate != "deferred":
            await waiting_events.close(connection, row, fate)
        return fate


def due_again(fate: EventFate, age: float) -> float | None:
    """Seconds until the reconciler looks again at an event that is so old; None: it has found its end."""
    match fate:
        case "hint":
            return 0.0
        case "deferred" | "unmatched":
            return FIRST_TRY
        case "early":
            return min(max(FIRST_TRY, age / 4), OFTEN_ENOUGH)
        case _:
            return None


async def write_fate(
    connection: AsyncConnection[Any],
    row: UUID,
    fate: EventFate,
    what: Ready | None,
    *,
    again: float | None,
    failed: bool = False,
) -> None:
    """Write what became of an event; `again`: seconds until the reconciler looks at it once more."""
    await connection.execute(
        WRITE_FATE,
        {
            "id": row,
            "fate": fate,
            "intent": what.match.intent_id if what else None,
            "row": what.match.row_id if what else None,
            "failed": failed,
            "again": again,
        },
    )


def _headers(delivery: Delivery) -> dict[str, Any]:
    kept: dict[str, str] = {}
    for raw, value in delivery.headers:
        name = raw.decode("latin-1").lower()
        if name not in NOT_KEPT:
            text = value.decode("latin-1")
            kept[name] = f"{kept[name]}, {text}" if name in kept else text
    return storable.fields(kept)


def _reported(delivery: Delivery, fate: EventFate) -> EventFate:
    if delivery.out_of_time and fate != "duplicate":
        telemetry.webhook_out_of_time(delivery.provider, delivery.account, delivery.event_id)
    telemetry.webhook(delivery.provider, delivery.account, fate)
    return fate
