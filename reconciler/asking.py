"""Asking about one taken row: a replay where the contract allows it, then a look-up; then what it showed is written."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, assert_never
from uuid import uuid4

from idem.outbox import decide, telemetry
from idem.outbox.answers import Renderer
from idem.outbox.change import Change, Evidence, Letter, StoredProof
from idem.outbox.contract import Contract, Question
from idem.outbox.database import Database
from idem.outbox.lane import Lane
from idem.outbox.outcomes import (
    Absent,
    Ambiguous,
    CouldNotAsk,
    Look,
    NotExecuted,
    Outcome,
    Pending,
    Refused,
    Seen,
    Succeeded,
    failure,
    name,
)
from idem.outbox.proofs import apply, change_one, note
from idem.outbox.providers.defaults import REQUEST
from idem.outbox.rows import Found
from idem.outbox.states import OutboxStatus, Reason
from idem.outbox.terms import Terms
from idem.reconciler import verdict
from idem.reconciler.control import ControlQuestion
from idem.reconciler.due import Taken

How: TypeAlias = Literal["replay", "look"]
ANSWERS_THAT_DECIDE_NOTHING = REQUEST | {500}
"""Statuses of a replay that are the provider's own word, given again and again: they use up a look (IB-089)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """What asking came to. `sent`: an attempt was made that can still act."""

    how: How
    look: Look
    seen: Seen
    sent: bool
    counts: bool = False


async def ask(lane: Lane, control: ControlQuestion, taken: Taken) -> Answered | None:
    """Replay or look up, best strategy first. None: there is nothing that could be asked."""
    sent = False
    counts = False
    replay: Answered | None = None
    if taken.replay and taken.request is not None:
        outcome, seen = await lane.send(taken.id, taken.request, lease_ends=taken.lease_ends, start=lambda: True)
        what, why = name(outcome), failure(outcome, seen)
        provider, account = lane.provider.contract.provider, lane.account.name
        telemetry.called(provider, account, taken.intent_id, taken.attempt, what, seen.elapsed, why, how="replay")
        # What is proven not executed cannot act later: it needs no quiet time of its own.
        sent = not isinstance(outcome, NotExecuted)
        replayed = _as_look(outcome, seen, lane.provider.contract)
        counts = isinstance(replayed, CouldNotAsk) and seen.http_status in ANSWERS_THAT_DECIDE_NOTHING
        replay = Answered("replay", replayed, seen, sent, counts)
        if not isinstance(replay.look, CouldNotAsk):
            return replay
    awaiting = taken.status is OutboxStatus.AWAITING
    question = Question(taken.provider_key, taken.reference, awaiting)
    if not lane.provider.questions(question):
        return replay
    look, seen = await lane.ask(question, lease_ends=taken.lease_ends)
    look, seen = await control.confirm(look, seen, lease_ends=taken.lease_ends)
    if isinstance(look, CouldNotAsk) and replay is not None and counts:
        return replay
    return Answered("look", look, seen, sent, counts)


def _as_look(outcome: Outcome, seen: Seen, contract: Contract) -> Look:
    """On a replay only Succeeded, Pending and Refused count; a 401 or 404 there proves nothing about the first send."""
    match outcome:
        case Refused() if contract.unlisted_4xx == "answer" and seen.http_status in REQUEST:
            # A refusal of this request by its status alone: the first send may have met other rights, or another rule.
            return CouldNotAsk()
        case Succeeded() | Refused() | Pending():
            return outcome
        case NotExecuted(retry_after=wait):
            return CouldNotAsk(wait)
        case Ambiguous():
            return CouldNotAsk()
        case _ as unlisted:
            assert_never(unlisted)


async def settle(
    database: Database, renderer: Renderer, taken: Taken, found: Answered | None, terms: Terms
) -> tuple[str, Change | None]:
    """Write what asking came to, under the take's token; if the take is lost, a proof still counts as a proof.

    Returns a word for what became of it, and the change that was written.
    """
    how = found.how if found else "look"
    look = found.look if found else CouldNotAsk()
    seen = found.seen if found else Seen(note="there is nothing that could be asked")
    evidence = Evidence("reconciler", how, name(look), seen)
    proof: StoredProof | None = None
    letters: tuple[Letter, ...] = ()
    match look:
        case Succeeded() | Refused() | Pending():
            told = await renderer.render(terms.operation, look, taken.intent_id)
            proof = StoredProof(uuid4(), "reconciler", look, told.answer, seen.http_status, taken.attempt, told.interim)
            letters = (told.letter,) if told.letter else ()
        case Absent() | CouldNotAsk():
            pass
        case _ as unlisted:
            assert_never(unlisted)
    if proof is not None:
        evidence = dataclasses.replace(evidence, reference=proof.proof.reference)
        if seen.copies > 1:
            # One call, several objects: whatever made them, nobody else will notice (hazard 17).
            twice = {"copies": seen.copies, "reference": proof.proof.reference, "provider_key": taken.provider_key}
            letters = (*letters, Letter(Reason.POSSIBLE_DUPLICATE, twice))

    def make(held: Found) -> Change | None:
        row = held.row
        if row.token != taken.token or row.attempt != taken.attempt:
            return None
        if proof is not None:
            change = decide.proven(row, proof, held.stored, terms, evidence)
            return dataclasses.replace(change, letters=(*change.letters, *letters))
        if found is None:
            change = verdict.not_askable(row, evidence, terms)
        elif isinstance(look, CouldNotAsk) and found.counts:
            change = verdict.undecided(row, CouldNotAsk(), evidence, terms, sent=found.sent)
            change = verdict.answered(change, row, terms)
        elif isinstance(look, Absent | CouldNotAsk):
            change = verdict.undecided(row, look, evidence, terms, sent=found.sent)
        else:
            raise AssertionError("a proof was handled above")
        return decide.fold(change, row, None, held.stored, terms)

    async with database.connection() as connection:
        written = await change_one(connection, taken.id, make)
        if written is None and proof is not None:
            applied = await apply(connection, taken.id, proof, evidence, terms, letters=letters)
            telemetry.proof_applied(taken.intent_id, "reconciler", applied)
            return applied, None
        if written is None:
            await note(connection, taken.id, evidence, kind=f"{how}_lost", token=taken.token, attempt=taken.attempt)
            return "lost", None
    if written.status is not taken.status:
        telemetry.settled(taken.intent_id, how if proof else "absent", str(written.state))
    return "settled" if written.status is not taken.status else "kept", written
