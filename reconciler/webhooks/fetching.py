"""Hints of one lane: the provider is asked about the object of each, and what it shows is the proof."""

import asyncio
import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from psycopg import AsyncConnection

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.transition import DeadLetter, Evidence
from idem.outbox.domain.webhook import Event
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.providers import tracing
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.record import note
from idem.outbox.values import clock
from idem.reconciler.pump import Pump
from idem.reconciler.webhooks import applying, fetch_claim, hints, waiting_events
from idem.reconciler.webhooks.applying import EventFate
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.fetch_claim import Hint
from idem.reconciler.webhooks.matching import with_step
from idem.reconciler.webhooks.retries import pause

SOON: Final = 60.0
"""Seconds at most until a question that failed is asked again: a claim may be waiting for it, and the breaker keeps
it from a provider that is away."""

NOTHING_TO_ASK: Final = "no look-up is possible about it: `webhook.fetch` needs a look-up by id"
UNCONFIRMABLE: Final = (
    "the provider has signed it, but its time stamp is not near its arrival time, and no look-up could confirm it: "
    "let the provider send it again, or compare it with what the provider shows and decide"
)

UNSETTLED: Final = frozenset(
    {
        OutboxStatus.APPROVAL, OutboxStatus.UNFROZEN, OutboxStatus.WAITING, OutboxStatus.PENDING, OutboxStatus.HELD,
        OutboxStatus.CLAIMED,
    }
)  # fmt: skip


@dataclasses.dataclass(eq=False, repr=False)
class Hints:
    """Asks about the hints of one lane, through the lane's own limits, breaker and deadline."""

    database: Database
    catalogue: Catalogue
    renderer: Renderer
    lane_name: LaneScope
    lane: Lane
    settings: ReconcilerSettings

    def __post_init__(self) -> None:
        self._pump = Pump(self.lane)
        self.settled = 0

    async def start(self) -> int:
        """Take what is due, as far as the lane has room, and begin to ask; how many."""
        limit = min(self.settings.batch, self._pump.room())
        if limit <= 0 or self.lane.provider.webhook is None:
            return 0
        lease, now = max(self.settings.lease, waiting_events.LEASE), clock.boottime()
        async with self.database.connection() as connection:
            claimed = await fetch_claim.claim_hints(connection, self.lane_name, lease=lease, limit=limit, now=now)
        for hint in claimed:
            self._pump.begin(self._ask(hint))
        return len(claimed)

    async def start_all(self, stop: asyncio.Event) -> None:
        """Take until nothing is due, until `stop`, or until the next pass is."""
        await self._pump.run(self.start, stop, self.settings.interval)

    async def finish(self) -> None:
        """Wait for the questions that run."""
        await self._pump.finish()

    async def _ask(self, hint: Hint) -> None:
        with tracing.of_row(hint.traceparent):
            await self._try(hint)

    async def _try(self, hint: Hint) -> None:
        try:
            await self._settle(hint)
        except Exception as error:  # one event must never stop the others: it is claimed again when its lease is over
            if not isinstance(error, (*AWAY, *REFUSED)):
                with suppress(*AWAY, *REFUSED):
                    await waiting_events.broken(self.database, hint.waiting, error, again=pause(hint.waiting.tries))

    async def _settle(self, hint: Hint) -> None:
        waiting, match = hint.waiting, hint.match
        # Without its body it is asked about by what was kept of it.
        event = await waiting.read(self.lane.provider) or Event(reference=hint.reference, bare=True, later=hint.later)
        async with self.database.connection() as connection:
            if await hints.is_old_news(connection, match.intent_id, match.row_id, event):
                await self._end(connection, hint, event, "agrees", Seen(note="it is already known"), None)
                return
            if event.later and hint.status in (None, OutboxStatus.AWAITING):
                await self._allow_fact(connection, hint)
                return
        question = hint.question(event)
        if not self.lane.provider.questions(question):
            seen = Seen(note=UNCONFIRMABLE if waiting.out_of_time else NOTHING_TO_ASK)
            await self._ask_later(hint, event, CouldNotAsk(), seen, answered=True)
            return
        answer, seen = await self.lane.ask(question, lease_ends=hint.lease_ends)
        telemetry.looked_up(waiting.provider, waiting.account, match.intent_id, "event", name(answer), seen.why)
        match answer:
            case Succeeded() | Refused() | Pending():
                await self._apply(hint, event, answer, seen)
            case Absent():
                await self._not_there(hint, event, seen)
            case CouldNotAsk():
                answered = seen.http_status is not None and 200 <= seen.http_status < 300
                await self._ask_later(hint, event, answer, seen, answered=answered)

    async def _apply(self, hint: Hint, event: Event, answer: Succeeded | Refused | Pending, seen: Seen) -> None:
        waiting = hint.waiting
        shown = dataclasses.replace(event, said=answer, reference=answer.reference, bare=False, later=False)
        delivery = Delivery(waiting.provider, waiting.account, waiting.event_id, shown)
        call = hint.match
        if call.step is not None:
            async with self.database.connection() as connection:
                call = await with_step(connection, call)
        what = await applying.ready(self.catalogue, self.renderer, delivery, call, fetched=seen)
        if seen.copies > 1:
            # One call, several objects: whatever made them, nobody else will notice (hazard 17).
            twice = {"copies": seen.copies, "reference": answer.reference, "provider_key": hint.keys[0]}
            what = dataclasses.replace(what, letters=(*what.letters, DeadLetter(Reason.POSSIBLE_DUPLICATE, twice)))
        async with self.database.connection() as connection, after_commit.transaction(connection):
            if not await waiting_events.still_waits(connection, waiting):
                return
            fate, error = await applying.settle(connection, waiting.id, what)
            if error is not None:
                await fetch_claim.put_off(connection, hint, again=pause(waiting.tries), counts=True)
                await waiting_events.bury(connection, waiting, error)
                return
            if event.later:
                await fetch_claim.allow_fact(connection, hint)
            else:
                await fetch_claim.end(connection, hint, fate)
            await waiting_events.close(connection, waiting.id, fate)
        self._report(hint, fate)

    async def _not_there(self, hint: Hint, event: Event, seen: Seen) -> None:
        """Believed like any other absence: when enough look-ups agree and the consistency horizon has passed."""
        lookup, absences = self.lane.provider.contract.lookup, hint.absences + 1
        left = lookup.horizon - hint.waiting.age
        if event.later and absences >= lookup.agree and left < 0:
            seen = dataclasses.replace(seen, note="the provider says what happened to an object, but shows no object")
            await self._ask_later(hint, event, CouldNotAsk(), seen, answered=True)
            return
        async with self.database.connection() as connection:
            if absences >= lookup.agree and left < 0:
                await self._end(connection, hint, event, "unconfirmed", seen, "absent")
                return
            again = max(min(pause(absences), SOON), left + 1 if absences >= lookup.agree else 0.0)
            await fetch_claim.put_off(connection, hint, again=again, counts=False, absences=absences)

    async def _ask_later(self, hint: Hint, event: Event, answer: CouldNotAsk, seen: Seen, *, answered: bool) -> None:
        """Put off a question that failed; `answered`: the provider is there and would always give the same answer."""
        waiting = hint.waiting
        again = min(max(1.0, waiting.age / 4), SOON)
        if answer.retry_after is not None:
            again = max(again, min(answer.retry_after, self.lane.provider.contract.retry_after_cap))
        async with self.database.connection() as connection:
            # A later fact keeps only what may be sent from its way; elsewhere it has time.
            if not answered or (event.later and hint.status not in UNSETTLED):
                await fetch_claim.put_off(connection, hint, again=again, counts=False)
                return
            enough = waiting.tries >= waiting_events.FAILURES_THAT_NEED_A_PERSON
            if enough and (hint.overridden or (event.bare and hint.status not in UNSETTLED)):
                # Its object is in a state that ends nothing, and no call waits for what it says.
                await self._end(connection, hint, event, "noted", seen, None)
                return
            async with after_commit.transaction(connection):
                await fetch_claim.put_off(connection, hint, again=max(again, pause(waiting.tries)), counts=True)
                asked_in_vain = f"what was fetched decides nothing: {seen.note or 'no rule'}"
                await waiting_events.bury(
                    connection, waiting, UNCONFIRMABLE if seen.note == UNCONFIRMABLE else asked_in_vain
                )

    async def _allow_fact(self, connection: AsyncConnection[Any], hint: Hint) -> None:
        """A later fact whose call has come to its end, or whose object is known."""
        async with after_commit.transaction(connection):
            if await waiting_events.still_waits(connection, hint.waiting):
                await hints.drop(connection, hint.waiting.id)
                await fetch_claim.allow_fact(connection, hint)
                # Whoever closed it now would give up what is about to be told.
                await waiting_events.close(connection, hint.waiting.id, "early")

    async def _end(
        self, connection: AsyncConnection[Any], hint: Hint, event: Event, fate: EventFate, seen: Seen,
        outcome: str | None,
    ) -> None:  # fmt: skip
        """A hint that changes nothing: it goes, and what was seen is kept."""
        waiting = hint.waiting
        details: Mapping[str, Any] = {"event": waiting.event_id, "type": event.type}
        evidence = Evidence("webhook", "fetched", outcome, seen, event.reference, details)
        async with after_commit.transaction(connection):
            if not await waiting_events.still_waits(connection, waiting):
                return
            await hints.drop(connection, waiting.id)
            await note(connection, hint.match.row_id, evidence, token=waiting.id)
            await fetch_claim.end(connection, hint, fate)
            await waiting_events.close(connection, waiting.id, fate)
        self._report(hint, fate)

    def _report(self, hint: Hint, fate: EventFate) -> None:
        self.settled += 1
        telemetry.webhook(hint.waiting.provider, hint.waiting.account, fate)
