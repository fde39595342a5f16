"""An intent that a person gives up: cancelled, rejected, or undone. Pure."""

import dataclasses

from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import Refused
from idem.outbox.domain.states import CLOSED_BY_PROOF, KeyState
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.settle import steps
from idem.outbox.settle.decide import unchanged


def cancelled(row: OutboxRow, evidence: Evidence, terms: Terms, answer: Answer) -> Change:
    """Completed with the operation's answer `cancelled`, so that a delayed duplicate cannot execute it."""
    change = unchanged(row, evidence, terms, alone=True)
    if row.plan is not None:
        return steps.cancelled(change, row, answer, terms)
    return dataclasses.replace(
        change, status=None, state=KeyState.COMPLETED, ended="cancelled", answer=answer, closes=CLOSED_BY_PROOF,
        event="completed",
    )  # fmt: skip


def undone(row: OutboxRow, evidence: Evidence, terms: Terms, refused: Refused | None) -> Change:
    """What a flow has done is undone: the compensations begin."""
    return steps.undone(unchanged(row, evidence, terms, alone=True), row, refused, terms)


def rejected(row: OutboxRow, evidence: Evidence, terms: Terms, answer: Answer) -> Change:
    """Completed with the operation's answer `rejected`: a person did not approve the call, and it is never made."""
    change = cancelled(row, evidence, terms, answer)
    # What lost commits have done of a flow before is undone first: then it does not end here.
    return change if change.ended is None else dataclasses.replace(change, ended="rejected")
