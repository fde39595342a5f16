"""What follows from what was seen: pure functions from a row and an outcome to a change. No I/O, no clock.

A row that is `pending` was never sent or has every attempt proven not executed (a CHECK holds that). So a worker's
claim of it that ends `NotExecuted` leaves the whole intent proven not executed; on a row that was `unknown` it
proves nothing about the earlier attempts.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, assert_never

from idem.outbox.domain.completion import is_open
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import OutboxRow, Source, StoredProof
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.states import CLOSED_BY_PROOF, KeyState, OutboxStatus, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import steps
from idem.outbox.settle.endings import (
    RETRY_BASE,
    RETRY_CAP,
    at_rest,
    concluded,
    disagreement,
    not_executed,
    rest_message,
    resting,
    unknown,
    unless_client_retries,
)
from idem.outbox.settle.steps import about
from idem.outbox.values.backoff import backoff

SWEEPS_THAT_SHOW_A_CRASH = 3
AT_REST = frozenset({Reason.TOO_LATE, Reason.UNRENDERABLE, Reason.REJECTED, Reason.CRASHES_WORKER, Reason.PARTIAL})
"""The reasons of a row at rest: they are over when it is not at rest any more."""


def report(
    row: OutboxRow, outcome: Outcome, seen: Seen, answer: Answer | None, terms: Terms, interim: Any = None
) -> Change:
    """The end of a claim, reported by its holder, when no stored proof speaks of the row."""
    evidence = Evidence(row.caller, "report", name(outcome), seen, reference_of(outcome))
    # Every call ends here, so the change is made once and not copied for each thing that it says.
    change = unchanged(row, evidence, terms, alone=True, quiet_for=terms.contract.flight_limit, sweeps=0)
    match outcome:
        case Succeeded() | Refused() | Pending():
            return concluded(change, row, outcome, answer, interim, terms)
        case NotExecuted():
            return not_executed(change, row, outcome, terms)
        case Ambiguous():
            return unknown(ambiguous(change, row, outcome, seen), row, terms)
        case _ as unlisted:
            assert_never(unlisted)


def ambiguous(change: Change, row: OutboxRow, outcome: Ambiguous, seen: Seen) -> Change:
    """What an attempt that decided nothing shows all the same: a failure that the provider keeps under the key for
    ever (no replay, and a new key for the next send), a 5xx answer of its own (it may still act: `late_effects`)."""
    return dataclasses.replace(
        change,
        # The key of an inline row is its caller's to use.
        key_burned=True if outcome.cached and not row.inline else None,
        server_error=True if own_error(seen) else None,
    )


def own_error(seen: Seen) -> bool:
    """Whether an attempt was answered with a 5xx. A proxy's counts too: it cannot be told apart for sure."""
    return seen.http_status is not None and seen.http_status >= 500


def fold(
    change: Change, row: OutboxRow, own: StoredProof | None, stored: Sequence[StoredProof], terms: Terms
) -> Change:
    """A change with the row's stored proofs folded into it; `own` is the proof that made the change, if one did.

    Proofs that disagree before anything is settled leave the row unknown, with an open conflict. One that speaks of
    what a cancel has undone, or of a refusal that was decided about, goes and says nothing: the evidence keeps it.
    """
    if own is None and not stored:
        return change
    change = dataclasses.replace(change, alone=False, folds=tuple(p.id for p in stored))
    stored = [p for p in stored if not p.undone and not steps.is_old_refusal(row, p)]
    own = None if own is not None and steps.is_old_refusal(row, own) else own
    proofs = [*([own] if own else []), *stored]
    if not proofs:
        return change
    seen = _undecided(change)
    for one, other in itertools.combinations(proofs, 2):
        if letter := disagreement(one.proof, other.proof):
            keeps = row.status in (OutboxStatus.UNKNOWN, OutboxStatus.AWAITING)
            return dataclasses.replace(
                unknown(seen, row, terms),
                status=row.status if keeps else OutboxStatus.UNKNOWN,
                state=row.state if keeps else KeyState.UNKNOWN,
                letters=(letter,),
            )
    # They agree: an end before a beginning, one that knows the reference before one that does not, and of beginnings
    # the newest, whose interim answer is what the client needs now.
    ends = [p for p in proofs if not is_open(p.proof)]
    newest = [*([own] if own else []), *reversed(stored)]
    best = min(ends or newest, key=lambda p: p.proof.reference is None)
    return concluded(seen, row, best.proof, best.answer, best.interim, terms)


def proven(
    row: OutboxRow, found: StoredProof, stored: Sequence[StoredProof], terms: Terms, evidence: Evidence
) -> Change:
    """A proof about a row without a live claim: its step is done at once, whichever attempt it belongs to."""
    change = unchanged(row, evidence, terms)
    if row.status is OutboxStatus.CLAIMED:
        change = _claim_was_lost(change, row, terms)
    return fold(change, row, found, stored, terms)


def swept(row: OutboxRow, stored: Sequence[StoredProof], terms: Terms, by: Source = "sweeper") -> Change:
    """A lease that ran out. It is never simply run again, unless a start mark is in use and absent."""
    evidence = Evidence(by, "swept", details={"sweeps": row.sweeps + 1, "holder_known": row.holder_known})
    change = _claim_was_lost(unchanged(row, evidence, terms), row, terms)
    if row.marks_start and not row.started:
        if terms.known and row.sweeps + 1 >= SWEEPS_THAT_SHOW_A_CRASH:
            change = at_rest(change, row, terms, DeadLetter(Reason.CRASHES_WORKER, {"sweeps": row.sweeps + 1}))
        else:
            change = dataclasses.replace(
                change, status=OutboxStatus.PENDING, state=KeyState.IN_PROGRESS, due_in=backoff(0, base=1, cap=1)
            )
    else:
        change = unknown(change, row, terms)
    return fold(change, row, None, stored, terms)


def too_old(row: OutboxRow, terms: Terms) -> Change:
    """A queued row whose time to start has passed: proven not sent, unless it is doubted."""
    change = dataclasses.replace(unchanged(row, Evidence("sweeper", "too_old"), terms), alone=True)
    return at_rest(change, row, terms, DeadLetter(Reason.TOO_LATE, {"attempts": row.attempt}))


def verdict(row: OutboxRow, evidence: Evidence, terms: Terms, *, redrive: bool = True) -> Change:
    """Proven not executed: at rest, with a due time for the automatic redrive or with a dead letter.

    An operator's verdict (`redrive` False) never redrives by itself. Where no client retries, an operator
    must still decide about the intent, so it rests with an open dead letter all the same (P1).
    """
    change = unchanged(row, evidence, terms)
    change = dataclasses.replace(
        resting(change, row, terms), error_code="not_executed", closes=CLOSED_BY_PROOF, alone=True, whole=True,
        doubt="ends",
    )  # fmt: skip
    automatic = (
        redrive
        and not row.inline
        and terms.operation.redrive == "auto"
        and row.redrives < terms.operation.max_redrives
        and row.start_left > 0
        and row.sweeps < SWEEPS_THAT_SHOW_A_CRASH
    )
    if automatic:
        wait = backoff(row.redrives, base=RETRY_BASE, cap=RETRY_CAP)
        if row.key_burned:
            # Under a new key the old one protects no more: nothing sent under it may be able to act (hazard 10).
            wait = max(wait, row.quiet_left or 0.0)
        return dataclasses.replace(change, redrive_in=wait, event=None)
    reason = Reason.CRASHES_WORKER if row.sweeps >= SWEEPS_THAT_SHOW_A_CRASH else Reason.TOO_LATE
    letter = DeadLetter(reason, {"redrives": row.redrives, "sweeps": row.sweeps})
    # Only its client takes an inline row up again, so nothing may stand in its way: no operator could redrive it.
    letters = () if row.inline else unless_client_retries(letter, row, terms)
    message = change.error_message if steps.partly_done(row) else rest_message(reason if letters else None)
    return dataclasses.replace(change, letters=letters, closes=change.closes - {reason}, error_message=message)


def redriven(row: OutboxRow, evidence: Evidence, terms: Terms, *, patience: float | None = None) -> Change:
    """A row at rest goes back to work under the same provider key. Only a person's redrive moves the patience.

    A burned key is never sent again: the row goes back to be rendered, under a new key (`idem.outbox.worker.freezing`).
    One that is blocked by its ordering key waits first. What nobody has approved waits for that again: a redrive asks,
    and does not release.
    """
    return dataclasses.replace(
        unchanged(row, evidence, terms),
        status=row.queued_as,
        state=KeyState.IN_PROGRESS,
        due_in=max(0.0, row.quiet_left or 0.0) if row.key_burned else 0.0,
        redrives=row.redrives + 1,
        patience=patience,
        closes=AT_REST,
        alone=True,
    )


def with_dead_letter(row: OutboxRow, evidence: Evidence, terms: Terms, letter: DeadLetter) -> Change:
    """Open a dead letter; state, status and the next look-up stay as they are."""
    change = dataclasses.replace(
        unchanged(row, evidence, terms), letters=about(row, letter), alone=True, keeps_schedule=True
    )
    if row.status is OutboxStatus.UNKNOWN:
        change = dataclasses.replace(change, error_code="outcome_unknown")
    if row.token is None:
        return change
    # A reconciler went away with its claim, which may have been a replay: the next claim would raise the quiet time
    # by as much.
    quiet = terms.contract.flight_limit + terms.contract.pause_allowance
    return dataclasses.replace(change, quiet_for=quiet, quiet_from="lease")


def database_changed(row: OutboxRow, evidence: Evidence, terms: Terms) -> Change:
    """A queued row of a database that lost commits: it may have been sent by what was lost (hazards 5, 60).

    That it would have been redriven by itself is kept in the evidence: if nothing was lost, it is again.
    """
    if row.redrives_itself:
        evidence = dataclasses.replace(evidence, details={**evidence.details, "redrive": "auto"})
    change = dataclasses.replace(
        unchanged(row, evidence, terms),
        quiet_for=terms.contract.flight_limit + terms.contract.pause_allowance,
        closes=AT_REST,
        doubt="begins",
    )
    return unknown(change, row, terms)


def unchanged(
    row: OutboxRow,
    evidence: Evidence,
    terms: Terms,
    *,
    alone: bool = False,
    quiet_for: float | None = None,
    sweeps: int | None = None,
) -> Change:
    """The change that writes the evidence and leaves state and status as they are."""
    return Change(
        row_id=row.id,
        token=row.token,
        attempt=row.attempt,
        status=row.status,
        state=row.state,
        evidence=evidence,
        answer_ttl=terms.operation.answer_ttl,
        alone=alone,
        quiet_for=quiet_for,
        sweeps=sweeps,
    )


def _claim_was_lost(change: Change, row: OutboxRow, terms: Terms) -> Change:
    # The holder may be frozen between its last check and its first byte: unless its end is on record, the quiet
    # time takes in a pause (hazards 1, 54).
    allowance = 0.0 if row.holder_known else terms.contract.pause_allowance
    return dataclasses.replace(
        change, quiet_for=terms.contract.flight_limit + allowance, quiet_from="lease", sweeps=row.sweeps + 1
    )


def _undecided(change: Change) -> Change:
    # What was seen stays: guard, evidence, quiet time, sweeps. What was concluded from it alone goes, or a row that a
    # proof completes would carry the dead letter, the event and the answer of an end that it did not have. That the
    # answer could not be rendered stays true.
    return dataclasses.replace(
        change,
        ended=None,
        answer=None,
        interim=None,
        still_open=False,
        reference=None,
        result=None,
        step_end=None,
        next_step=None,
        completes_key=False,
        error_code=None,
        error_message=None,
        due_in=None,
        redrive_in=None,
        rests=False,
        letters=tuple(letter for letter in change.letters if letter.reason is Reason.ANSWER_FAILED),
        closes=frozenset(),
        event=None,
    )


def reference_of(outcome: Outcome) -> str | None:
    """The provider's reference, if the outcome has one."""
    return outcome.reference if isinstance(outcome, Succeeded | Refused | Pending) else None
