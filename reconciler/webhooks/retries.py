"""Events that wait, looked at again: those that no call was known for, and those that could not be applied."""

import dataclasses
from typing import Final

from idem.outbox.daemon.schedule import Over, never
from idem.outbox.database.pool import AWAY, REFUSED, Database, records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.webhook import Event
from idem.outbox.observe import after_commit, daemon_events, telemetry
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler.webhooks import applying, unmatched, waiting_events
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.ingest import FIRST_TRY, due_again, write_fate
from idem.reconciler.webhooks.matching import match
from idem.reconciler.webhooks.waiting_events import LEASE, WaitingEvent

SLOWEST: Final = 3600.0
"""Seconds at most between two tries of what failed."""

# Taking an event counts as a failure until it is decided, so that one which kills its process is noticed too.
CLAIM_EVENTS = """
WITH due AS MATERIALIZED (
    SELECT d.id FROM idem.webhook_events d
     WHERE d.retry_at <= statement_timestamp() AND d.fate <> 'hint' AND d.provider = ANY (%(providers)s)
     ORDER BY d.retry_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE idem.webhook_events w
       SET retry_at = statement_timestamp() + make_interval(secs => %(lease)s),
           tries    = w.tries + CASE w.fate WHEN 'deferred' THEN 1 ELSE 0 END
     WHERE w.id = ANY (ARRAY(SELECT id FROM due))
    RETURNING w.id, w.provider, w.account, w.event_id, w.fate, w.tries, w.intent_id, w.received_at, w.place,
              w.out_of_time
)
SELECT t.id, t.provider, t.account, t.event_id, t.fate, t.tries, t.intent_id, t.place, t.out_of_time,
       extract(epoch FROM statement_timestamp() - t.received_at)::float8 AS age,
       (SELECT b.body FROM idem.webhook_bodies b WHERE b.webhook_event_id = t.id) AS body
  FROM claimed t
"""


async def look_again(
    database: Database,
    catalogue: Catalogue,
    renderer: Renderer,
    *,
    limit: int,
    over: Over = never,
) -> int:
    """Try every event that is due, `limit` at a time; how many found their end. Raises AWAY.

    Young events become due again meanwhile, and there may be thousands. `over` ends it between two claims: each claimed
    event is tried, because a claim counts as a failure.
    """
    providers = [name for name, provider in catalogue.providers.items() if provider.webhook is not None]
    done = 0
    while providers and not over():
        async with database.connection() as connection:
            wanted = {"providers": providers, "limit": limit, "lease": LEASE}
            rows = await (await records(connection).execute(CLAIM_EVENTS, wanted)).fetchall()
        for row in rows:
            waiting = WaitingEvent(**row._asdict() | {"body": None if row.body is None else bytes(row.body)})
            try:
                done += await _try(database, catalogue, renderer, waiting)
            except AWAY:
                raise
            except REFUSED:  # no failure of the event's: it is claimed again when this claim is over
                daemon_events.left_locked(f"event {waiting.id}")
            except Exception as error:  # one event must never stop the others
                await waiting_events.broken(database, waiting, error, again=pause(max(waiting.tries, 1)))
        if len(rows) < limit:
            break
    return done


async def _try(database: Database, catalogue: Catalogue, renderer: Renderer, waiting: WaitingEvent) -> int:
    provider = catalogue.providers[waiting.provider]
    event = await waiting.read(provider)
    async with database.connection() as connection:
        found = None if event is None else await match(connection, waiting.provider, waiting.account, event)
        if event is None or found is None:
            if waiting.intent_id is not None and waiting.fate in ("deferred", "early"):
                # Its call is known, and what it says about it is told nowhere else: only a person can.
                await waiting_events.failed(connection, waiting, _why_lost(waiting, event), again=SLOWEST, at_once=True)
            else:
                await unmatched.wait_on(connection, waiting, event, provider.contract)
            return 0
    delivery = Delivery(waiting.provider, waiting.account, waiting.event_id, event, out_of_time=waiting.out_of_time)
    what = await applying.ready(catalogue, renderer, delivery, found)
    what = dataclasses.replace(what, recorded=waiting.fate == "early")
    async with database.connection() as connection, after_commit.transaction(connection):
        if not await waiting_events.still_waits(connection, waiting):
            return 0
        fate, error = await applying.settle(connection, waiting.id, what)
        if error is not None:
            # From unmatched to deferred: this was its first failure.
            tries = max(waiting.tries, 1)
            was_waiting = waiting.fate != "deferred"
            await write_fate(connection, waiting.id, "deferred", what, again=pause(tries), failed=was_waiting)
            await waiting_events.bury(
                connection, dataclasses.replace(waiting, intent_id=found.intent_id, tries=tries), error
            )
            return 0
        await write_fate(connection, waiting.id, fate, what, again=due_again(fate, waiting.age))
        if fate == "deferred":
            return 0
        await waiting_events.close(connection, waiting.id, fate)
    if fate == waiting.fate:
        return 0
    telemetry.webhook(waiting.provider, waiting.account, fate)
    return int(fate not in ("hint", "early"))


def _why_lost(waiting: WaitingEvent, event: Event | None) -> str:
    if event is not None:
        return "its body can no longer be read as an event of this call: the current contract finds no key of the call"
    if waiting.body is None:
        return "its body can no longer be read: it is no longer kept"
    return "its body can no longer be read: the current contract finds no such event in it"


def pause(tries: int) -> float:
    """Seconds until the next try of an event that has failed so often."""
    return float(min(FIRST_TRY * 4 ** min(tries, 10), SLOWEST))
