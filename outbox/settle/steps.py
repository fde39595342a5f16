"""The end of a step of a flow: which step begins with it, or how the intent ends. Pure."""

import dataclasses
from typing import Any, Final, TypeAlias

from idem.outbox.domain import approval
from idem.outbox.domain.completion import is_open, meaning
from idem.outbox.domain.operation import Answer, OperationSpec, StepSpec
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.outcomes import Pending, Proof, Refused, Succeeded
from idem.outbox.domain.plan import Following, StepEnd, StepOutcome, result
from idem.outbox.domain.states import CLOSED_BY_PROOF, KeyState, OutboxStatus, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, EndedAs
from idem.outbox.settle.own_answers import PARTLY_UNDONE, UNDONE

NOT_DONE = frozenset(
    {
        Reason.TOO_LATE, Reason.UNRENDERABLE, Reason.REJECTED, Reason.CRASHES_WORKER, Reason.RECONCILE_EXHAUSTED,
        Reason.NOT_SETTLEABLE,
    }
)  # fmt: skip
"""Why a step is not done, and nothing of ours follows before somebody decides."""


PARTLY_DONE: Final = "a step is done, and the next one is not: an operator must decide"
"""What is kept with the key of a flow that rests after something was done."""


def partly_done(row: OutboxRow) -> bool:
    """Whether something of a flow is done and stands: then not "nothing happened", and nobody sends it again."""
    return bool(row.ends) and bool(position(row)["done"])


def ended(change: Change, row: OutboxRow, outcome: Succeeded | Refused, answer: Answer | None, terms: Terms) -> Change:
    """The call of a step has its end. What the provider has refused and shows as done now is a contradiction."""
    if row.refused_there and isinstance(outcome, Succeeded) and change.evidence.source != "operator":
        about_it = {**position(row), "why": "it was refused, and is there now", "reference": outcome.reference}
        return dataclasses.replace(change, letters=(*change.letters, DeadLetter(Reason.CONFLICT, about_it)))
    end = _end(row, "succeeded" if isinstance(outcome, Succeeded) else "refused", outcome)
    change = dataclasses.replace(
        change,
        still_open=is_open(outcome),
        reference=outcome.reference,
        provider_status=outcome.status,
        result=dict(outcome.fields),
    )
    return _follow(change, row, end, answer, terms)


def is_old_refusal(row: OutboxRow, found: StoredProof) -> bool:
    """Whether a proof tells of a refusal again that an operator decides or has decided about: the step is sent under
    another provider key since, and that refusal says nothing of this send. A proof of ours names its attempt; a
    provider's own event, or what a look-up shows, has the reference of the object that was refused."""
    if not isinstance(found.proof, Refused) or found.source == "operator":
        return False
    if row.refused_there:
        return True
    if found.attempt is not None and found.attempt <= row.refused_attempt:
        return True
    sent = found.source in ("worker", "inline")
    return not sent and found.proof.reference is not None and found.proof.reference in row.refusals


def skipped(change: Change, row: OutboxRow, answer: Answer | None, terms: Terms) -> Change:
    """The open step is not wanted: `when` says so, or there is nothing to undo."""
    return _follow(change, row, _end(row, "skipped"), answer, terms)


def asking(change: Change, row: OutboxRow, ruling: approval.Ruling | None) -> Change:
    """The open step waits for an approval: its function does not run, and it is not skipped."""
    evidence = dataclasses.replace(change.evidence, kind="asked", details=approval.details(approval.ruled(row, ruling)))
    return dataclasses.replace(change, status=OutboxStatus.APPROVAL, ruling=ruling, evidence=evidence)


def cancelled(change: Change, row: OutboxRow, answer: Answer, terms: Terms) -> Change:
    """The open step is not made, and what was done before it is undone."""
    return _follow(change, row, _end(row, "cancelled"), answer, terms)


def undone(change: Change, row: OutboxRow, refused: Refused | None, terms: Terms) -> Change:
    """The same by an operator's word; `refused`: how the provider refused the open step, if it did."""
    assert row.plan is not None
    end = _end(row, "cancelled") if refused is None else _end(row, "refused", refused)
    if refused is not None:
        change = dataclasses.replace(
            change, reference=refused.reference, provider_status=refused.status, result=dict(refused.fields)
        )
    return _go_on(change, row, end, row.plan.undoing(row.step), None, terms)


def nothing_to_undo(row: OutboxRow) -> str | None:
    """Why what a flow has done cannot be undone now; None: it can be."""
    if row.plan is None:
        return "its operation has one call, and no earlier step is done"
    if row.undoes is not None:
        return "it is being undone already"
    done = [end for end in row.ends if end.succeeded]
    if not done:
        return "no earlier step is done: cancel it instead"
    undoing = {step.undoes for step in row.plan.steps}
    kept = next((end.name for end in reversed(done) if end.number not in undoing), None)
    return None if kept is None else f"step {kept} is done, and its operation has no step that undoes it"


def _end(row: OutboxRow, outcome: StepOutcome, said: Succeeded | Refused | None = None) -> StepEnd:
    assert row.plan is not None
    step = row.plan.step(row.step)
    if said is None:
        return StepEnd(row.step, step.name, outcome, undoes=step.undoes)
    return StepEnd(row.step, step.name, outcome, said.reference, said.status, dict(said.fields), step.undoes)


def _follow(change: Change, row: OutboxRow, end: StepEnd, answer: Answer | None, terms: Terms) -> Change:
    assert row.plan is not None
    then = row.plan.after(row.step, end.outcome)
    if then == "partial" and change.evidence.source == "operator":
        # An operator's word that it was refused is the decision that the entry would ask for.
        then = "end" if end.undoes is None else row.plan.after(row.step, "skipped")
    if then == "partial":
        return _partial(change, row, end)
    return _go_on(change, row, end, then, answer, terms)


def _go_on(
    change: Change, row: OutboxRow, end: StepEnd, then: Following, answer: Answer | None, terms: Terms
) -> Change:
    assert row.plan is not None and then != "partial"
    change = dataclasses.replace(
        change, status=None, step_end=end, due_in=None, closes=CLOSED_BY_PROOF | {Reason.PARTIAL}, error_code=None,
        error_message=None,
    )  # fmt: skip
    answers = _gives_answer(row, end, then)
    if answers and answer is None:
        raise ValueError("what gives the client its answer is settled with one that was already rendered")
    if then == "end":
        said = result(row.plan, (*row.ends, end)).outcome
        return dataclasses.replace(
            change, ends=(*row.ends, end), state=KeyState.COMPLETED, ended=_AS[said], answer=answer,
            event="corrected" if row.state is KeyState.FAILED_RETRYABLE else "completed",
        )  # fmt: skip
    change = dataclasses.replace(
        change, state=KeyState.IN_PROGRESS, next_step=then, next_patience=terms.operation.give_up_after,
        completes_key=answers, answer=answer if answers else None,
    )  # fmt: skip
    at_rest = row.state is KeyState.FAILED_RETRYABLE
    if row.key_over and at_rest and change.evidence.source != "operator":
        # Its client was told that nothing happened, and may have sent it again: a person decides whether it goes on.
        following = dataclasses.replace(row, step=then, step_name=row.plan.step(then).name, ends=(*row.ends, end))
        letter = DeadLetter(Reason.PARTIAL, {**position(following), "why": "the key has expired"})
        return dataclasses.replace(
            change, state=KeyState.FAILED_RETRYABLE, letters=(*change.letters, letter), event="partial"
        )
    return change


_AS: dict[StepOutcome, EndedAs] = {
    "succeeded": "succeeded", "skipped": "succeeded", "refused": "refused", "cancelled": "cancelled",
}  # fmt: skip


def _partial(change: Change, row: OutboxRow, end: StepEnd) -> Change:
    # The provider answers the same under this key for ever: what an operator sends again has the next one.
    refused = {"reference": end.reference, "status": end.status, "fields": dict(end.fields), "attempt": row.attempt}
    return dataclasses.replace(
        change,
        status=OutboxStatus.HELD,
        rests=True,
        key_burned=True,
        state=KeyState.FAILED_RETRYABLE,
        still_open=False,
        due_in=None,
        error_code=str(Reason.PARTIAL),
        error_message=PARTLY_DONE,
        letters=(*change.letters, DeadLetter(Reason.PARTIAL, {**position(row), "why": "refused", "refused": refused})),
        event="partial",
    )


def _gives_answer(row: OutboxRow, end: StepEnd, then: Following) -> bool:
    """Whether this end of the open step gives the client its answer."""
    assert row.plan is not None
    completes = end.succeeded and row.plan.step(row.step).completes
    return not row.key_completed and (completes or then == "end")


Conclusion: TypeAlias = Succeeded | Refused | Answer
"""What the client's answer is made of; an answer of idem's own where the flow was cancelled."""


def answered_by(row: OutboxRow, operation: OperationSpec, proof: Proof) -> Conclusion | None:
    """What the client's answer is made of if this proof about the open step is applied. None: it gets none by that."""
    match meaning(operation, proof):
        case Pending():
            return None
        case Succeeded() | Refused() as said:
            return _conclusion(row, _end(row, "succeeded" if isinstance(said, Succeeded) else "refused", said))


def answered_by_skip(row: OutboxRow) -> Conclusion | None:
    """The same if the open step is skipped."""
    return _conclusion(row, _end(row, "skipped"))


def _conclusion(row: OutboxRow, end: StepEnd) -> Conclusion | None:
    assert row.plan is not None
    # What an operator decides about a partial flow may be its end: an answer that is not needed costs nothing.
    then = row.plan.after(row.step, end.outcome)
    if not _gives_answer(row, end, "end" if then == "partial" else then):
        return None
    ends = (*row.ends, end)
    came_to = result(row.plan, ends)
    if came_to.outcome == "cancelled":
        given_up = any(each.undoes is not None and each.outcome == "refused" for each in ends)
        return PARTLY_UNDONE if given_up else UNDONE
    kind = Refused if came_to.outcome == "refused" else Succeeded
    return kind(came_to.reference, came_to.status, came_to.fields, steps=by_name(ends))


def is_wanted(row: OutboxRow, step: StepSpec, params: Any) -> bool:
    """Whether the open step is made: a compensation if what it undoes was done, any other if its `when` says so."""
    done = by_name(row.ends)
    if row.undoes is not None and not any(end.number == row.undoes and end.succeeded for end in row.ends):
        return False
    return step.when is None or bool(step.when(params, done))


def by_name(ends: tuple[StepEnd, ...]) -> dict[str, StepEnd]:
    """The results that later steps and the answer are made of."""
    return {end.name: end for end in ends}


def position(row: OutboxRow) -> dict[str, object]:
    """Where a flow stands, for people: its open step, and what is done and not undone."""
    undone = {end.undoes for end in row.ends if end.undoes is not None and end.succeeded}
    done = [end.name for end in row.ends if end.succeeded and end.undoes is None and end.number not in undone]
    assert row.plan is not None
    return {"step": row.step_name, "done": done, "steps": [step.name for step in row.plan.steps if step.undoes is None]}


def about(row: OutboxRow, *letters: DeadLetter) -> tuple[DeadLetter, ...]:
    """Dead letters about a row. Those of a flow say where it stands; a compensation not done is `partial` too."""
    if row.plan is None:
        return letters
    told = tuple(DeadLetter(each.reason, {**each.details, **position(row)}) for each in letters)
    because = [each.reason for each in letters if each.reason in NOT_DONE]
    if row.undoes is None or not because:
        return told
    undoes = row.plan.step(row.undoes).name
    return (*told, DeadLetter(Reason.PARTIAL, {**position(row), "why": str(because[0]), "undoes": undoes}))
