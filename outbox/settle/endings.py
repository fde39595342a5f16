"""How a change ends: what is written for each kind of outcome. Pure; `idem.outbox.settle.decide` chooses among them."""

import dataclasses
from typing import Any, assert_never

from idem.outbox.domain.completion import default_interim, is_open, meaning
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.outcomes import NotExecuted, Pending, Proof, Refused, Succeeded, name
from idem.outbox.domain.states import BLOCKS_RETRY, CLOSED_BY_PROOF, KeyState, OutboxStatus, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter
from idem.outbox.settle import steps
from idem.outbox.values.backoff import backoff, not_before

RETRY_BASE, RETRY_CAP = 1.0, 60.0
"""Seconds: back-off of an attempt that is proven not executed."""
DAY = 86400.0
"""Seconds: how often a row is still asked about when its schedule is used up, or it is awaited for too long."""
MOST_LOOKUPS = 30000
"""Where the count of look-ups stops."""
CONFIG_WAIT = 10.0
"""Seconds at the least before a row with a configuration error is tried again: it goes behind the others."""


def concluded(
    change: Change, row: OutboxRow, proof: Proof, answer: Answer | None, interim: Any, terms: Terms
) -> Change:
    """What a proof is for the operation of its row: an end, or a beginning that is awaited.

    The one place where a proof becomes a change, from every source; so `completes_when` is read here and nowhere else.
    """
    match meaning(terms.operation, proof, answered=answer is not None):
        case Succeeded() | Refused() as end:
            return ended(change, row, end, answer, terms)
        case Pending() as working:
            return accepted_there(change, row, working, interim, terms)
        case _ as unlisted:
            assert_never(unlisted)


def ended(change: Change, row: OutboxRow, outcome: Succeeded | Refused, answer: Answer | None, terms: Terms) -> Change:
    """The call has its end: its intent too, or the next step of its flow begins."""
    letters = _second_object(row, outcome)
    if row.key_used_anew:
        used = DeadLetter(Reason.CONFLICT, {"why": "the key expired and was used again", **about(outcome)})
        letters = (*letters, used)
    if letters:
        change = dataclasses.replace(change, letters=(*change.letters, *letters))
    if row.plan is None:
        return completed(change, row, outcome, answer)
    return steps.ended(change, row, outcome, answer, terms)


def completed(change: Change, row: OutboxRow, outcome: Succeeded | Refused, answer: Answer | None) -> Change:
    """The intent is done. A late proof after rest corrects the event that nothing happened."""
    if answer is None:
        raise ValueError("a final outcome is settled with an answer that was already rendered")
    return dataclasses.replace(
        change,
        status=None,
        state=KeyState.COMPLETED,
        ended="succeeded" if isinstance(outcome, Succeeded) else "refused",
        answer=answer,
        still_open=is_open(outcome),
        reference=outcome.reference,
        provider_status=outcome.status,
        result=dict(outcome.fields),
        due_in=None,
        closes=CLOSED_BY_PROOF,
        error_code=None,
        error_message=None,
        event="corrected" if row.state is KeyState.FAILED_RETRYABLE else "completed",
    )


def accepted_there(change: Change, row: OutboxRow, outcome: Pending, interim: Any, terms: Terms) -> Change:
    """The provider is working: never sent again, never swept, polled on the contract's pending schedule."""
    known = row.status is OutboxStatus.AWAITING
    left = until_scheduled(row) if known else None
    lookups = 0 if not known else row.lookups if left is not None else row.lookups + 1
    schedule = terms.contract.pending_schedule
    late = overdue(row, terms)
    return dataclasses.replace(
        change,
        status=OutboxStatus.AWAITING,
        state=KeyState.IN_PROGRESS,
        # Another object does not take the place of the one that is known: its entry names it.
        reference=row.reference or outcome.reference,
        result=dict(outcome.fields) or None,
        interim=default_interim(outcome) if interim is None else interim,
        due_in=left if left is not None else not_before(DAY if late else schedule[min(lookups, len(schedule) - 1)]),
        lookups=min(lookups, MOST_LOOKUPS),
        absences=0,
        failures=0,
        closes=CLOSED_BY_PROOF - {Reason.PENDING_TOO_LONG},
        letters=(*change.letters, *_second_object(row, outcome), *late),
    )


def until_scheduled(row: OutboxRow) -> float | None:
    """Seconds until the schedule's own next look-up, where the one that was made came before it; else None.

    An extra look-up uses up none of the schedule, however often one is made: what settles by itself still does.
    """
    left = row.scheduled_left
    return None if left is None or left <= 0 else left


def overdue(row: OutboxRow, terms: Terms) -> tuple[DeadLetter, ...]:
    """The dead letter of a row that has been awaited for too long, for every result of the last look-up (hazard 14)."""
    if row.status is not OutboxStatus.AWAITING or row.status_age <= terms.contract.pending_limit:
        return ()
    return (DeadLetter(Reason.PENDING_TOO_LONG, {"seconds": int(row.status_age), "reference": row.reference}),)


def _second_object(row: OutboxRow, outcome: Proof) -> tuple[DeadLetter, ...]:
    # The provider had accepted another object for this row: both may exist (hazard 17).
    if not another(row.reference, outcome.reference):
        return ()
    return (DeadLetter(Reason.POSSIBLE_DUPLICATE, {"known": row.reference, **about(outcome)}),)


def not_executed(change: Change, row: OutboxRow, outcome: NotExecuted, terms: Terms) -> Change:
    """Back to the queue, or at rest if the row is too old or refused as it is."""
    if row.inline:
        return (
            unknown(change, row, terms)
            if row.doubted_for is not None
            else _rests_for_its_client(change, row, outcome, terms)
        )
    if outcome.why == "request":
        details = {
            "attempts": row.attempt,
            "http_status": change.evidence.seen.http_status,
            "code": change.evidence.seen.code,
            "note": change.evidence.seen.note,
        }
        return at_rest(change, row, terms, DeadLetter(Reason.REJECTED, details))
    wait = 0.0 if outcome.why == "given_back" else backoff(row.failures, base=RETRY_BASE, cap=RETRY_CAP)
    if outcome.why == "config":
        wait = max(wait, CONFIG_WAIT)
    if outcome.retry_after is not None:
        # What the provider asks for never moves a row earlier.
        wait = max(wait, not_before(min(outcome.retry_after, terms.contract.retry_after_cap)))
    if row.start_left - wait <= 0 and outcome.why != "given_back":
        return at_rest(change, row, terms, DeadLetter(Reason.TOO_LATE, {"attempts": row.attempt, "last": outcome.why}))
    return dataclasses.replace(
        change,
        status=OutboxStatus.PENDING,
        state=KeyState.IN_PROGRESS,
        due_in=wait,
        failures=row.failures if outcome.why == "given_back" else row.failures + 1,
        error_code=f"not_executed_{outcome.why}",
    )


def _rests_for_its_client(change: Change, row: OutboxRow, outcome: NotExecuted, terms: Terms) -> Change:
    # No worker can make this call, and the answer asks its client to retry: an operator has nothing to do.
    return dataclasses.replace(resting(change, row, terms), error_code=f"not_executed_{outcome.why}")


def at_rest(change: Change, row: OutboxRow, terms: Terms, letter: DeadLetter) -> Change:
    """Held with its reason on record; the client retries it, or an operator decides.

    What commits that the database has forgotten may have sent is not proven by its own attempts: unknown.
    """
    if row.doubted_for is not None and not row.is_local_step:
        return unknown(change, row, terms)
    letters = unless_client_retries(letter, row, terms)
    return dataclasses.replace(
        resting(change, row, terms, letter.reason), error_code=str(letter.reason), letters=letters
    )


def resting(change: Change, row: OutboxRow, terms: Terms, reason: Reason | None = None) -> Change:
    """Proven not executed: the row is held and its key may run again. `reason`: why it rests, where that is kept."""
    partly = steps.partly_done(row)
    return dataclasses.replace(
        change,
        status=OutboxStatus.HELD,
        rests=True,
        state=KeyState.FAILED_RETRYABLE,
        error_message=steps.PARTLY_DONE if partly else rest_message(reason),
        answer_ttl=rest_ttl(terms),
        # A function's writes are in this database alone: what lost commits did of them is lost with them.
        whole=change.whole or row.is_local_step,
        event="partial" if partly else "rested",
    )


def unknown(change: Change, row: OutboxRow, terms: Terms) -> Change:
    """Bytes may have left. Look-ups are counted anew."""
    letters = change.letters
    if not terms.settleable and terms.standing_order is None:
        letters = (
            *letters,
            *steps.about(row, DeadLetter(Reason.NOT_SETTLEABLE, {"provider": terms.contract.provider})),
        )
    return dataclasses.replace(
        change,
        status=OutboxStatus.UNKNOWN,
        state=KeyState.UNKNOWN,
        due_in=not_before(terms.contract.schedule[0]),
        lookups=0,
        absences=0,
        failures=0,
        letters=letters,
        error_code="outcome_unknown",
    )


def disagreement(first: Proof, second: Proof) -> DeadLetter | None:
    """Two proofs agree if class and provider reference are equal; a missing reference contradicts nothing.

    What is open agrees with every end of its own object, so there only another reference contradicts.
    """
    same_class = type(first) is type(second) or is_open(first) or is_open(second)
    if same_class and not another(first.reference, second.reference):
        return None
    refused = isinstance(first, Refused) or isinstance(second, Refused)
    reason = Reason.CONFLICT if refused else Reason.POSSIBLE_DUPLICATE
    return DeadLetter(reason, {"first": about(first), "second": about(second)})


def another(known: str | None, reference: str | None) -> bool:
    """Whether two references name two objects."""
    return None not in (known, reference) and known != reference


def unless_client_retries(letter: DeadLetter, row: OutboxRow, terms: Terms) -> tuple[DeadLetter, ...]:
    """The entry of a row at rest; none where its client comes again. What is partly done is not left to a client."""
    comes_again = terms.operation.retry == "client" and not row.ends
    return () if comes_again and letter.reason is Reason.TOO_LATE else steps.about(row, letter)


def rest_message(reason: Reason | None) -> str:
    """What is kept with the key of an intent at rest."""
    if reason in BLOCKS_RETRY:
        return "nothing happened at the provider; an operator must decide before it may run again"
    return "nothing happened at the provider; the same key may be sent again"


def rest_ttl(terms: Terms) -> float:
    # A key at rest lives at least as long as a late proof can come.
    contract = terms.contract
    return max(terms.operation.answer_ttl, contract.flight_limit + contract.lookup.horizon + contract.pause_allowance)


def about(proof: Proof) -> dict[str, str | None]:
    return {"outcome": name(proof), "reference": proof.reference, "status": proof.status}


def flight_left(row: OutboxRow, contract: Contract) -> float:
    """Seconds for which what made a row unknown may still act, by what the contract says now: its flight limit may have
    been corrected since. 0 or less: it cannot any more."""
    return contract.flight_limit + (contract.pause_allowance if row.sweeps else 0.0) - row.status_age
