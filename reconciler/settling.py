"""Write the result of asking about a row: a proof, a verdict, a standing order, or the time of the next look-up."""

import dataclasses
from typing import assert_never
from uuid import uuid4

from idem.outbox.database.pool import Database
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.states import Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.observe import telemetry
from idem.outbox.settle import decide, steps
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.locked_rows import LockedRow
from idem.outbox.settle.proofs import apply, change_one
from idem.outbox.settle.record import note
from idem.reconciler import standing_orders, verdict
from idem.reconciler.asker import Answered
from idem.reconciler.lookup_claim import LookupClaim


async def settle(
    database: Database, renderer: Renderer, claim: LookupClaim, found: Answered | None, terms: Terms
) -> tuple[str, Change | None]:
    """Write what asking came to, under the claim's token; if the claim is lost, a proof still counts as a proof.

    Returns a word for what became of it, and the change that was written.
    """
    how = found.how if found else "lookup"
    lookup = found.lookup if found else CouldNotAsk()
    seen = found.seen if found else Seen(note=claim.withheld or "no look-up is possible")
    why = found.why if found else claim.withheld
    attempt = found.attempt if found and found.attempt is not None else claim.row.attempt
    evidence = Evidence("reconciler", how, name(lookup), seen)
    if found and found.tried:
        evidence = dataclasses.replace(evidence, details={"tried": list(found.tried)})
    proof: StoredProof | None = None
    letters: tuple[DeadLetter, ...] = ()
    order = standing_orders.StandingOrder()
    match lookup:
        case Succeeded() | Refused() | Pending():
            rendered = await renderer.render(terms.operation, lookup, claim.row.intent_id, claim.row)
            proof = StoredProof(
                uuid4(), "reconciler", lookup, rendered.answer, seen.http_status, attempt, rendered.interim
            )
            letters = (rendered.letter,) if rendered.letter else ()
        case Absent() | CouldNotAsk():
            order = await standing_orders.ready(renderer, claim, terms, asked=found is not None)
        case _ as unlisted:
            assert_never(unlisted)
    if proof is not None:
        evidence = dataclasses.replace(evidence, reference=proof.proof.reference)
        if seen.copies > 1:
            # One call, several objects: whatever made them, nobody else will notice (hazard 17).
            twice = {"copies": seen.copies, "reference": proof.proof.reference, "provider_key": claim.row.provider_key}
            letters = (*letters, DeadLetter(Reason.POSSIBLE_DUPLICATE, twice))

    def make(held: LockedRow) -> Change | None:
        row = held.row
        if row.token != claim.row.token or row.attempt != attempt:
            return None
        if proof is not None and found is not None and steps.is_old_refusal(row, proof):
            change = verdict.after_lookup(row, CouldNotAsk(), evidence, terms, sent=found.sent)
            return verdict.explained(verdict.answered(change, row, terms), "it shows the refusal of an earlier send")
        if proof is not None:
            change = decide.proven(row, proof, held.stored, terms, evidence)
            return dataclasses.replace(change, letters=(*change.letters, *letters))
        if found is not None:
            row = dataclasses.replace(
                row,
                key_burned=row.key_burned or found.burned,
                server_error=row.server_error or found.server_error,
            )
        if found is None:
            change = verdict.not_askable(row, evidence, terms)
            change = verdict.explained(change, why)
        elif isinstance(lookup, CouldNotAsk) and found.counts:
            change = verdict.after_lookup(row, CouldNotAsk(), evidence, terms, sent=found.sent)
            change = verdict.explained(verdict.answered(change, row, terms), why)
        elif isinstance(lookup, Absent) and how == "cancel":
            change = verdict.voided_at_provider(row, evidence, terms)
            if any(verdict.outlasts(p) for p in held.stored):
                change = verdict.contradicted(row, held.stored, evidence, terms)
            if held.stored:
                folds = tuple(p.id for p in held.stored)
                return dataclasses.replace(change, alone=False, folds=folds, server_error=row.server_error)
        elif isinstance(lookup, Absent | CouldNotAsk):
            change = verdict.after_lookup(row, lookup, evidence, terms, sent=found.sent)
        else:
            raise AssertionError("a proof was handled earlier")
        change = standing_orders.carried_out(change, row, terms, order)
        change = dataclasses.replace(change, key_burned=row.key_burned, server_error=row.server_error)
        return decide.fold(change, row, None, held.stored, terms)

    async with database.connection() as connection:
        written = await change_one(connection, claim.row.id, make)
        if written is None and proof is not None:
            applied = await apply(connection, claim.row.id, proof, evidence, terms, letters=letters)
            telemetry.proof_applied(claim.row.intent_id, "reconciler", applied)
            return applied, None
        if written is None:
            await note(connection, claim.row.id, evidence, kind=f"{how}_lost", token=claim.row.token, attempt=attempt)
            return "lost", None
    if written.status is not claim.row.status:
        by = (
            written.evidence.source if written.evidence.source == standing_orders.SOURCE else how if proof else "absent"
        )
        telemetry.settled(claim.row.intent_id, by, str(written.state))
    return "settled" if written.status is not claim.row.status else "kept", written
