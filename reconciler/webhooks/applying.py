"""What a matched event does to its call: under a savepoint, and without waiting for anybody's lock."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.completion import is_open
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import DeadLetter, Evidence
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle import key_rotation, later_facts
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.proofs import apply, store
from idem.outbox.settle.record import note
from idem.outbox.values.errors import ConfigError
from idem.reconciler.webhooks import hints
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.matching import MatchedCall, provider_key

EventFate: TypeAlias = Literal[
    "applied", "stored", "agrees", "later_fact", "conflict", "noted", "ignored", "unmatched", "deferred", "duplicate",
    "hint", "early", "foreign", "unconfirmed",
]  # fmt: skip
"""What became of an event.

applied: it settled its call, or showed that the provider has accepted it. stored: as an unapplied proof, because of a
live claim or a locked row. agrees, conflict: compared with a step that was done. later_fact: told about an object that
exists, or the key was complete when the object existed, and now that has failed. noted: it is evidence, and no proof.
ignored: of a type that nobody wants, or about an object that its call made beside its own. unmatched: about no call
that we know yet. deferred: applying it failed, and is tried again. duplicate: known already. hint: the provider is
asked before it is believed (its contract wants that, or it came out of time), or because it is a later fact about a
call of which we know no object; unconfirmed: and has nothing. early: a later fact that is told when its call has ended.
foreign: about nothing of ours, as far as can be told.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """A matched event with the answer, or the interim answer, that was rendered outside any transaction.

    `fetched`: what the provider has shown when it was asked about the event, which then says that. `recorded`: it is
    evidence already. `beside`: it is about another object than the call's own, which the call has made beside it.
    """

    delivery: Delivery
    match: MatchedCall
    terms: Terms
    answer: Answer | None = None
    letters: tuple[DeadLetter, ...] = ()
    interim: Any = None
    fetched: Seen | None = None
    recorded: bool = False
    beside: bool = False

    @property
    def is_hint(self) -> bool:
        """Whether the provider must be asked before it is believed."""
        if self.fetched is not None or self.beside:
            return False
        return hints.is_due(self.terms.contract, self.delivery.event, out_of_time=self.delivery.out_of_time)

    @property
    def needs_no_answer(self) -> bool:
        """Whether what it says may give the client no answer: of a step of a flow that this process knows."""
        return self.terms.known and self.terms.operation.step is not None

    def proof(self, event_row: UUID) -> StoredProof | None:
        """What is stored or applied. It has the id of its event, so that a second try takes up the first one's."""
        said = self.delivery.event.said
        if said is None or self.beside or (self.answer is None and not (is_open(said) or self.needs_no_answer)):
            return None
        http_status = None if self.fetched is None else self.fetched.http_status
        return StoredProof(event_row, "webhook", said, self.answer, http_status, interim=self.interim)

    def evidence(self) -> Evidence:
        event = self.delivery.event
        details: dict[str, Any] = {"event": self.delivery.event_id, "type": event.type}
        if self.delivery.out_of_time:
            details["out_of_time"] = True
        if event.later:
            told = {**details, "status": event.status, "fields": dict(event.fields)}
            return Evidence("webhook", "later_fact", None, Seen(note=event.note), event.reference, told)
        if self.beside:
            return Evidence("webhook", "webhook", None, Seen(note="another object of the same call"), None, details)
        outcome = None if event.said is None else name(event.said)
        if self.fetched is not None:
            return Evidence("webhook", "fetched", outcome, self.fetched, event.reference, details)
        return Evidence("webhook", "webhook", outcome, Seen(note=event.note), event.reference, details)


async def ready(
    catalogue: Catalogue, renderer: Renderer, delivery: Delivery, match: MatchedCall, *, fetched: Seen | None = None
) -> Ready:
    """Render the client's answer. An operation that is not known here renders nothing.

    `fetched`: the event says what the provider showed when idem asked it.
    """
    terms = catalogue.cautious(match.operation, delivery.provider, match.step)
    said, provider = delivery.event.said, catalogue.providers.get(delivery.provider)
    wanted = None if provider is None else provider.kind(match.path)
    beside = wanted is not None and not (delivery.event.later or delivery.event.bare) and delivery.event.kind != wanted
    what = Ready(delivery, match, terms, fetched=fetched, beside=beside)
    if said is None or beside or not terms.known or what.is_hint:
        return what
    told = await renderer.render(terms.operation, said, match.intent_id, match.open_row)
    letters = (told.letter,) if told.letter else ()
    return replace(what, answer=told.answer, letters=letters, interim=told.interim)


async def settle(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> tuple[EventFate, str | None]:
    """Apply, inside the caller's transaction, so that one fault does not take the event with it (hazard 31).

    Returns what became of it, and the error that deferred it. Raises only where the connection itself is lost.
    """
    try:
        async with after_commit.transaction(connection):
            return await _apply(connection, event_row, what), None
    except Exception as error:
        if connection.closed:
            raise
        telemetry.broken("webhooks", error, f"applying an event to {what.match.intent_id}")
        await _store_at_least(connection, event_row, what)
        return "deferred", f"{type(error).__name__}: {error}"[:500]


IS_STORED = "SELECT EXISTS (SELECT FROM idem.proofs WHERE id = %(id)s)"


async def _apply(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> EventFate:
    event = what.delivery.event
    if event.later:
        return await _emit_fact(connection, event_row, what)
    if what.beside:
        await note(connection, what.match.row_id, what.evidence(), token=event_row)
        return "ignored"
    if what.is_hint or await _was_cancelled(connection, what):
        if not await hints.is_old_news(connection, what.match.intent_id, what.match.row_id, event):
            await hints.keep(connection, event_row, what.match.row_id, event)
            return "hint"
        await note(connection, what.match.row_id, what.evidence(), token=event_row)
        return "agrees"
    if event.said is None:
        await note(connection, what.match.row_id, what.evidence(), token=event_row)
        return "noted"
    # Until here, so that a fault below leaves the hint where it is.
    await hints.drop(connection, event_row)
    key = provider_key(event.key) if isinstance(event.said, Refused) else None
    if key is not None and await key_rotation.is_void(connection, what.match.row_id, key):
        await note(connection, what.match.row_id, what.evidence(), token=event_row)
        return "noted"
    proof = what.proof(event_row)
    if proof is None:
        raise ConfigError(f"operations.{what.match.operation}: it is not configured in this process")
    applied = await apply(
        connection, what.match.row_id, proof, what.evidence(), what.terms, letters=what.letters, wait=False
    )
    if applied != "lost":
        telemetry.proof_applied(what.match.intent_id, "webhook", applied)
        return applied
    # Not stored a second time: an earlier try did it, or the call itself is past its retention.
    stored = await (await connection.execute(IS_STORED, {"id": event_row})).fetchone()
    return "stored" if stored and stored[0] else "unmatched"


async def _was_cancelled(connection: AsyncConnection[Any], what: Ready) -> bool:
    """Whether it says that something exists which we have told the provider to cancel. It may have happened before, and
    come late: only the provider knows what stands now."""
    key, said = provider_key(what.delivery.event.key), what.delivery.event.said
    if what.fetched is not None or key is None or not isinstance(said, Succeeded | Pending):
        return False
    return await key_rotation.is_cancelled(connection, what.match.row_id, key)


async def _emit_fact(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> EventFate:
    event, match = what.delivery.event, what.match
    may_be_emitted = what.delivery.out_of_time and not what.recorded
    if may_be_emitted and await hints.was_emitted(connection, event_row, match.intent_id, what.delivery.event_id):
        return "agrees"
    # Whoever was asked once is not asked again: what was seen waits for the row, or speaks of an earlier key.
    stored, no_news = await hints.answered(connection, event_row, match.intent_id) if what.recorded else (False, False)
    told = await later_facts.record_fact(
        connection, match.row_id, match.intent_id, what.evidence(),
        token=event_row, status=event.status, fields=event.fields, recorded=what.recorded, step=match.step,
        explained=no_news or await key_rotation.is_cancelled(connection, match.row_id, provider_key(event.key)),
    )  # fmt: skip
    match told:
        case "emitted":
            return "later_fact"
        case "early":
            return "early"
        case "open" if stored:
            return "early"
        case "open":
            # What was refunded was made: no send, and no verdict that nothing was, until the provider has been asked.
            await hints.keep(connection, event_row, match.row_id, event)
            return "hint"
        case "locked":
            # What is recorded is not recorded once more.
            return "early" if what.recorded else "deferred"


async def _store_at_least(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> None:
    # No claim may meet a row of which we hold a proof that it does not see (hazard 53).
    proof = None if what.is_hint else what.proof(event_row)
    if proof is None:
        return
    try:
        async with after_commit.transaction(connection):
            await store(connection, what.match.row_id, proof, what.evidence())
    except Exception as error:
        if connection.closed:
            raise
        telemetry.broken("webhooks", error, f"storing an event's proof for {what.match.intent_id}")
