"""Standing orders: what a setting assumes of a call that nothing can settle (hazard 39).

The configuration allows them only where no value is at risk; each has evidence of its own, with the source `policy`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final, assert_never
from uuid import uuid4

from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.outcomes import Succeeded, name
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import decide
from idem.outbox.settle.answer_rendering import Renderer
from idem.reconciler.lookup_claim import LookupClaim
from idem.reconciler.verdict import EDGE, quiet_left

SOURCE: Final = "policy"
UNSETTLED = frozenset({Reason.NOT_SETTLEABLE, Reason.RECONCILE_EXHAUSTED})
"""The dead letters that a standing order answers in place of a person."""


@dataclass(frozen=True, slots=True)
class StandingOrder:
    """What a standing order needs: whether something was asked, and the proof that it is to be done as if it had been
    seen, with the client's answer."""

    asked: bool = True
    done: StoredProof | None = None
    letters: tuple[DeadLetter, ...] = ()


async def ready(renderer: Renderer, claim: LookupClaim, terms: Terms, *, asked: bool) -> StandingOrder:
    """Render the client's answer before the row is locked, if the order may be carried out now."""
    last = not asked or claim.lookups_then >= len(terms.contract.schedule)
    if terms.standing_order != "assume_done" or claim.row.status is not OutboxStatus.UNKNOWN or not last:
        return StandingOrder(asked)
    assumed = Succeeded(None)
    rendered = await renderer.render(terms.operation, assumed, claim.row.intent_id, claim.row)
    return StandingOrder(
        asked, StoredProof(uuid4(), SOURCE, assumed, rendered.answer), (rendered.letter,) if rendered.letter else ()
    )


def carried_out(change: Change, row: OutboxRow, terms: Terms, prepared: StandingOrder) -> Change:
    """The change of a claim that decided nothing, or what the standing order makes of it.

    It is carried out when the schedule is used up, or at once where nothing can ever be asked; never before the quiet
    time has passed, and never against proofs on record.
    """
    order = terms.standing_order
    if order is None or change.status is not OutboxStatus.UNKNOWN or row.contradicted:
        return change
    used_up = change.lookups is not None and change.lookups >= len(terms.contract.schedule)
    if (prepared.asked or terms.contract.events_settle) and not used_up:
        return change
    if (left := quiet_left(row, change, terms.contract)) > 0:
        letters = tuple(letter for letter in change.letters if letter.reason not in UNSETTLED)
        return dataclasses.replace(change, due_in=left + EDGE, letters=letters)
    details = {"order": order, "setting": f"providers.{row.provider}.on_unsettleable", "lookups": row.lookups}
    evidence = Evidence(SOURCE, order, details={**details, "last": change.evidence.kind})
    match order:
        case "assume_not_done":
            return decide.verdict(row, evidence, terms)
        case "assume_done":
            if prepared.done is None:
                # It became due between the claim and now: the next claim has the answer.
                return dataclasses.replace(change, due_in=EDGE)
            evidence = dataclasses.replace(evidence, outcome=name(prepared.done.proof))
            done = decide.proven(row, prepared.done, (), terms, evidence)
            return dataclasses.replace(done, alone=True, folds=(), letters=(*done.letters, *prepared.letters))
        case _ as unlisted:
            assert_never(unlisted)
