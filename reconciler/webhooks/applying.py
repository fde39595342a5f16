"""What a matched event does to its call: under a savepoint, and without waiting for anybody's lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox import moves, telemetry
from idem.outbox.answers import Renderer
from idem.outbox.catalogue import Catalogue
from idem.outbox.change import Evidence, Letter, StoredProof
from idem.outbox.completion import is_open
from idem.outbox.errors import ConfigError
from idem.outbox.operation import Answer
from idem.outbox.outcomes import Seen, name
from idem.outbox.proofs import apply, note, store
from idem.outbox.terms import Terms
from idem.reconciler.webhooks.delivery import Delivery
from idem.reconciler.webhooks.matching import Match

Verdict: TypeAlias = Literal[
    "applied", "stored", "agrees", "later_fact", "conflict", "noted", "ignored", "unmatched", "deferred", "duplicate"
]
"""What became of an event.

applied: it settled its call, or showed that the provider has accepted it. stored: as an unapplied proof, because of a
live claim or a locked row. agrees, conflict: compared with a step that was done. later_fact: the key was complete when
the object existed, and now that has failed. noted: it is evidence, and no proof.
ignored: of a type that nobody wants. unmatched: about no call that we know yet. deferred: applying it failed, and is
tried again. duplicate: known already.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """A matched event with the answer, or the interim answer, that was rendered outside any transaction."""

    delivery: Delivery
    match: Match
    terms: Terms
    answer: Answer | None = None
    letters: tuple[Letter, ...] = ()
    interim: Any = None

    def proof(self, event_row: UUID) -> StoredProof | None:
        """What is stored or applied. It has the id of its event, so that a second try takes up the first one's."""
        said = self.delivery.event.said
        if said is None or (self.answer is None and not is_open(said)):
            return None
        return StoredProof(event_row, "webhook", said, self.answer, interim=self.interim)

    def evidence(self) -> Evidence:
        event = self.delivery.event
        details = {"event": self.delivery.event_id, "type": event.type}
        outcome = None if event.said is None else name(event.said)
        return Evidence("webhook", "webhook", outcome, Seen(note=event.note), event.reference, details)


async def ready(catalogue: Catalogue, renderer: Renderer, delivery: Delivery, match: Match) -> Ready:
    """Render what the client will hear. An operation that is not known here renders nothing."""
    terms = catalogue.cautious(match.operation, delivery.provider)
    said = delivery.event.said
    if said is None or not terms.known:
        return Ready(delivery, match, terms)
    told = await renderer.render(terms.operation, said, match.intent_id)
    return Ready(delivery, match, terms, told.answer, (told.letter,) if told.letter else (), told.interim)


async def settle(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> tuple[Verdict, str | None]:
    """Apply, inside the caller's transaction, so that one fault does not take the event with it (hazard 31).

    Returns what became of it, and the error that deferred it. Raises only where the connection itself is lost.
    """
    try:
        async with moves.transaction(connection):
            return await _apply(connection, event_row, what), None
    except Exception as error:
        if connection.closed:
            raise
        telemetry.broken("webhooks", error, f"applying an event to {what.match.intent_id}")
        await _store_at_least(connection, event_row, what)
        return "deferred", f"{type(error).__name__}: {error}"[:500]


IS_STORED = "SELECT EXISTS (SELECT FROM idem.proofs WHERE id = %(id)s)"


async def _apply(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> Verdict:
    if what.delivery.event.said is None:
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


async def _store_at_least(connection: AsyncConnection[Any], event_row: UUID, what: Ready) -> None:
    # No claim may meet a row of which we hold a proof that it does not see (hazard 53).
    proof = what.proof(event_row)
    if proof is None:
        return
    try:
        async with moves.transaction(connection):
            await store(connection, what.match.row_id, proof, what.evidence())
    except Exception as error:
        if connection.closed:
            raise
        telemetry.broken("webhooks", error, f"storing an event's proof for {what.match.intent_id}")
