"""What follows from what was seen: pure functions from a row and an outcome to a change. No I/O, no clock.

A row that is `pending` was never sent or has every attempt proven not executed (a CHECK holds that). So a worker's
claim of it that ends `NotExecuted` leaves the whole intent proven not executed; on a row that was `unknown` it
proves nothing about the earlier attempts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from idem.outbox.backoff import backoff, not_before
from idem.outbox.change import Change, Evidence, Letter, Row, StoredProof
from idem.outbox.contract import Contract
from idem.outbox.operation import Answer, Operation
from idem.outbox.outcomes import (
    Ambiguous,
    NotExecuted,
    Outcome,
    Pending,
    Proof,
    Refused,
    Seen,
    Succeeded,
    name,
)
from idem.outbox.states import CLOSED_BY_PROOF, KeyState, OutboxStatus, Reason

SWEEPS_THAT_SHOW_A_CRASH = 3
RETRY_BASE, RETRY_CAP = 1.0, 60.0
"""Seconds: back-off of an attempt that is proven not executed."""
CONFIG_WAIT = 10.0
"""Seconds at the least before a row with a configuration error is tried again: it goes behind the others."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which contract and for which operation a row is decided.

    `known` is False in a daemon whose configuration lacks the row's operation: it decides nothing that depends on it.
    """

    contract: Contract
    operation: Operation
    known: bool = True

    @property
    def settleable(self) -> bool:
        """Whether idem can find out by itself what became of an unknown row of this provider."""
        return not self.known or self.contract.replays or self.contract.lookup.possible


def report(row: Row, outcome: Outcome, seen: Seen, answer: Answer | None, terms: Terms) -> Change:
    """The end of a worker's claim, reported by its holder, when no stored proof speaks of the row."""
    change = _change(row, Evidence("worker", "report", name(outcome), seen, reference_of(outcome)), terms)
    change = dataclasses.replace(change, quiet_for=terms.contract.flight_limit, sweeps=0)
    match outcome:
        case Succeeded() | Refused():
            return completed(change, row, outcome, answer)
        case Pending():
            return accepted_there(change, row, outcome, terms)
        case NotExecuted():
            return not_executed(change, row, outcome, terms)
        case Ambiguous():
            return unknown(change, terms)
        case _ as unlisted:
            assert_never(unlisted)


def fold(change: Change, row: Row, own: StoredProof | None, stored: Sequence[StoredProof], terms: Terms) -> Change:
    """A change with the row's stored proofs folded into it; `own` is the proof that made the change, if one did.

    Proofs that disagree before anything is settled leave the row unknown, with an open conflict.
    """
    proofs = [*([own] if own else []), *stored]
    if not proofs:
        return change
    change = dataclasses.replace(change, alone=False, folds=tuple(p.id for p in stored))
    seen = _undecided(change)
    finals = [p for p in proofs if isinstance(p.proof, Succeeded | Refused)]
    for other in finals[1:]:
        if letter := disagreement(finals[0].proof, other.proof):
            keeps = row.status in (OutboxStatus.UNKNOWN, OutboxStatus.AWAITING)
            return dataclasses.replace(
                unknown(seen, terms),
                status=row.status if keeps else OutboxStatus.UNKNOWN,
                state=row.state if keeps else KeyState.UNKNOWN,
                letters=(letter,),
            )
    if finals and isinstance(finals[0].proof, Succeeded | Refused):
        return completed(seen, row, finals[0].proof, finals[0].answer)
    if isinstance(proofs[0].proof, Pending):
        return accepted_there(seen, row, proofs[0].proof, terms)
    return change


def proven(row: Row, found: StoredProof, stored: Sequence[StoredProof], terms: Terms, evidence: Evidence) -> Change:
    """A proof about a row without a live claim: its step is done at once, whichever attempt it belongs to."""
    change = _change(row, evidence, terms)
    if row.status is OutboxStatus.CLAIMED:
        change = _claim_was_lost(change, row, terms)
    return fold(change, row, found, stored, terms)


def swept(row: Row, stored: Sequence[StoredProof], terms: Terms) -> Change:
    """A lease that ran out. It is never simply run again, unless a start mark is in use and absent."""
    evidence = Evidence("sweeper", "swept", details={"sweeps": row.sweeps + 1, "holder_known": row.holder_known})
    change = _claim_was_lost(_change(row, evidence, terms), row, terms)
    if row.marks_start and not row.started:
        if row.sweeps + 1 >= SWEEPS_THAT_SHOW_A_CRASH:
            change = at_rest(change, row, terms, Letter(Reason.CRASHES_WORKER, {"sweeps": row.sweeps + 1}))
        else:
            change = dataclasses.replace(
                change, status=OutboxStatus.PENDING, state=KeyState.IN_PROGRESS, due_in=backoff(0, base=1, cap=1)
            )
    else:
        change = unknown(change, terms)
    return fold(change, row, None, stored, terms)


def too_old(row: Row, terms: Terms) -> Change:
    """A queued row whose time to start has passed: proven not sent."""
    change = dataclasses.replace(_change(row, Evidence("sweeper", "too_old"), terms), alone=True)
    return at_rest(change, row, terms, Letter(Reason.TOO_LATE, {"attempts": row.attempt}))


def verdict(row: Row, evidence: Evidence, terms: Terms, *, redrive: bool = True) -> Change:
    """Proven not executed: at rest, with a due time for the automatic redrive or with a dead letter.

    An operator's verdict (`redrive` False) never redrives by itself and opens nothing.
    """
    change = _change(row, evidence, terms)
    change = dataclasses.replace(
        change,
        status=OutboxStatus.HELD,
        state=KeyState.FAILED_RETRYABLE,
        error_code="not_executed",
        error_message="nothing happened at the provider; the same key may be sent again",
        closes=CLOSED_BY_PROOF,
        answer_ttl=_rest_ttl(terms),
        alone=True,
    )
    if not redrive:
        return dataclasses.replace(change, event="rested")
    automatic = (
        terms.operation.redrive == "auto"
        and row.redrives < terms.operation.max_redrives
        and row.start_left > 0
        and row.sweeps < SWEEPS_THAT_SHOW_A_CRASH
    )
    if automatic:
        return dataclasses.replace(change, redrive_in=backoff(row.redrives, base=RETRY_BASE, cap=RETRY_CAP))
    reason = Reason.CRASHES_WORKER if row.sweeps >= SWEEPS_THAT_SHOW_A_CRASH else Reason.TOO_LATE
    letter = Letter(reason, {"redrives": row.redrives, "sweeps": row.sweeps})
    letters = _unless_client_retries(letter, terms)
    return dataclasses.replace(change, letters=letters, closes=change.closes - {reason}, event="rested")


def redriven(row: Row, evidence: Evidence, terms: Terms, *, patience: float | None = None) -> Change:
    """A row at rest goes back to work under the same provider key. Only a person's redrive moves the patience."""
    return dataclasses.replace(
        _change(row, evidence, terms),
        status=OutboxStatus.PENDING,
        state=KeyState.IN_PROGRESS,
        due_in=0.0,
        redrives=row.redrives + 1,
        patience=patience,
        closes=frozenset({Reason.TOO_LATE, Reason.UNRENDERABLE, Reason.REJECTED, Reason.CRASHES_WORKER}),
        alone=True,
    )


def cancelled(row: Row, evidence: Evidence, terms: Terms, answer: Answer) -> Change:
    """Completed with the operation's answer `cancelled`, so that a delayed duplicate cannot execute it."""
    return dataclasses.replace(
        _change(row, evidence, terms),
        status=None,
        state=KeyState.COMPLETED,
        ended="cancelled",
        answer=answer,
        closes=CLOSED_BY_PROOF,
        event="completed",
        alone=True,
    )


def database_changed(row: Row, evidence: Evidence, terms: Terms) -> Change:
    """A queued row of a database that lost commits: it may have been sent by what was lost (hazards 5, 60)."""
    change = dataclasses.replace(
        _change(row, evidence, terms),
        quiet_for=terms.contract.flight_limit + terms.contract.pause_allowance,
        closes=frozenset({Reason.TOO_LATE, Reason.UNRENDERABLE, Reason.REJECTED, Reason.CRASHES_WORKER}),
        alone=True,
    )
    return unknown(change, terms)


def completed(change: Change, row: Row, outcome: Succeeded | Refused, answer: Answer | None) -> Change:
    """The step is done. A late proof after rest is a correction for whoever was told that nothing happened."""
    if answer is None:
        raise ValueError("a final outcome is settled with an answer that was rendered before")
    letters = change.letters
    if row.key_used_anew:
        letters = (*letters, Letter(Reason.CONFLICT, {"why": "the key expired and was used anew", **_about(outcome)}))
    return dataclasses.replace(
        change,
        status=None,
        state=KeyState.COMPLETED,
        ended="succeeded" if isinstance(outcome, Succeeded) else "refused",
        answer=answer,
        reference=outcome.reference,
        result=dict(outcome.fields),
        due_in=None,
        closes=CLOSED_BY_PROOF,
        letters=letters,
        error_code=None,
        error_message=None,
        event="corrected" if row.state is KeyState.FAILED_RETRYABLE else "completed",
    )


def accepted_there(change: Change, row: Row, outcome: Pending, terms: Terms) -> Change:
    """The provider is working: never sent again, never swept, polled on the contract's pending schedule."""
    known = row.status is OutboxStatus.AWAITING
    looks = row.looks + 1 if known else 0
    schedule = terms.contract.pending_schedule
    letters = change.letters
    if known and row.status_age > terms.contract.pending_limit:
        letters = (*letters, Letter(Reason.PENDING_TOO_LONG, {"seconds": int(row.status_age), **_about(outcome)}))
    return dataclasses.replace(
        change,
        status=OutboxStatus.AWAITING,
        state=KeyState.IN_PROGRESS,
        reference=outcome.reference,
        result=dict(outcome.fields) or None,
        due_in=not_before(schedule[min(looks, len(schedule) - 1)]),
        looks=looks,
        absents=0,
        misses=0,
        closes=CLOSED_BY_PROOF - {Reason.PENDING_TOO_LONG},
        letters=letters,
    )


def not_executed(change: Change, row: Row, outcome: NotExecuted, terms: Terms) -> Change:
    """Back to the queue, or at rest if the row is too old or refused as it is."""
    if outcome.why == "request":
        details = {
            "attempts": row.attempt,
            "http_status": change.evidence.seen.http_status,
            "code": change.evidence.seen.code,
            "note": change.evidence.seen.note,
        }
        return at_rest(change, row, terms, Letter(Reason.REJECTED, details))
    wait = 0.0 if outcome.why == "given_back" else backoff(row.misses, base=RETRY_BASE, cap=RETRY_CAP)
    if outcome.why == "config":
        wait = max(wait, CONFIG_WAIT)
    if outcome.retry_after is not None:
        # The provider's wish never moves a row earlier.
        wait = max(wait, not_before(min(outcome.retry_after, terms.contract.retry_after_cap)))
    if row.start_left - wait <= 0 and outcome.why != "given_back":
        return at_rest(change, row, terms, Letter(Reason.TOO_LATE, {"attempts": row.attempt, "last": outcome.why}))
    return dataclasses.replace(
        change,
        status=OutboxStatus.PENDING,
        state=KeyState.IN_PROGRESS,
        due_in=wait,
        misses=row.misses if outcome.why == "given_back" else row.misses + 1,
        error_code=f"not_executed_{outcome.why}",
    )


def at_rest(change: Change, row: Row, terms: Terms, letter: Letter) -> Change:
    """Held with its reason on record; the client was told, or an operator is."""
    letters = (letter,) if letter.reason is not Reason.TOO_LATE else _unless_client_retries(letter, terms)
    return dataclasses.replace(
        change,
        status=OutboxStatus.HELD,
        state=KeyState.FAILED_RETRYABLE,
        error_code=str(letter.reason),
        error_message="nothing happened at the provider; the same key may be sent again",
        answer_ttl=_rest_ttl(terms),
        letters=letters,
        event="rested",
    )


def unknown(change: Change, terms: Terms) -> Change:
    """Bytes may have left. Looks are counted anew."""
    letters = change.letters
    if not terms.settleable:
        letters = (*letters, Letter(Reason.NOT_SETTLEABLE, {"provider": terms.contract.provider}))
    return dataclasses.replace(
        change,
        status=OutboxStatus.UNKNOWN,
        state=KeyState.UNKNOWN,
        due_in=not_before(terms.contract.schedule[0]),
        looks=0,
        absents=0,
        misses=0,
        letters=letters,
        error_code="outcome_unknown",
    )


def disagreement(first: Proof, second: Proof) -> Letter | None:
    """Two proofs agree if class and provider reference are equal; a missing reference contradicts nothing."""
    if isinstance(first, Pending) or isinstance(second, Pending):
        return None
    same_class = type(first) is type(second)
    same_reference = first.reference == second.reference or None in (first.reference, second.reference)
    if same_class and same_reference:
        return None
    both_succeeded = isinstance(first, Succeeded) and isinstance(second, Succeeded)
    reason = Reason.POSSIBLE_DUPLICATE if both_succeeded else Reason.CONFLICT
    return Letter(reason, {"first": _about(first), "second": _about(second)})


def _change(row: Row, evidence: Evidence, terms: Terms) -> Change:
    return Change(
        row_id=row.id,
        token=row.token,
        attempt=row.attempt,
        status=row.status,
        state=row.state,
        evidence=evidence,
        answer_ttl=terms.operation.answer_ttl,
    )


def _claim_was_lost(change: Change, row: Row, terms: Terms) -> Change:
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
        reference=None,
        result=None,
        error_code=None,
        error_message=None,
        due_in=None,
        redrive_in=None,
        letters=tuple(letter for letter in change.letters if letter.reason is Reason.HANDLER_FAILED),
        closes=frozenset(),
        event=None,
    )


def _unless_client_retries(letter: Letter, terms: Terms) -> tuple[Letter, ...]:
    return () if terms.operation.retry == "client" and letter.reason is Reason.TOO_LATE else (letter,)


def _rest_ttl(terms: Terms) -> float:
    # A key at rest lives at least as long as a late proof can come.
    contract = terms.contract
    return max(terms.operation.answer_ttl, contract.flight_limit + contract.lookup.horizon + contract.pause_allowance)


def reference_of(outcome: Outcome) -> str | None:
    """The provider's reference, if the outcome has one."""
    return outcome.reference if isinstance(outcome, Succeeded | Refused | Pending) else None


def _about(proof: Proof) -> dict[str, str | None]:
    return {"outcome": name(proof), "reference": proof.reference, "status": proof.status}
