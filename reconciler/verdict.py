"""From a look to a change: pure. What counts, what proves, and when to ask again."""

import dataclasses
from collections.abc import Sequence

from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outbox_row import OutboxRow, StoredProof
from idem.outbox.domain.outcomes import Absent, CouldNotAsk, Refused, name
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.settle import decide
from idem.outbox.settle.endings import DAY, MOST_LOOKUPS, flight_left, overdue, until_scheduled
from idem.outbox.settle.replay_window import memory_left
from idem.outbox.values.backoff import backoff, not_before
from idem.reconciler.strategies import may_act_late

EDGE = 0.05
"""Seconds past the quiet time at which the deciding look is made."""


def after_lookup(
    row: OutboxRow, lookup: Absent | CouldNotAsk, evidence: Evidence, terms: Terms, *, sent: bool
) -> Change:
    """A look that found nothing, or a question that failed. `sent`: the claim made an attempt that can still act.

    `Absent` becomes "proven not executed" only when enough look-ups agree and the last of them was asked when the quiet
    time and the consistency horizon had passed (hazards 1, 2, 54); never against proofs on record, however much these
    disagree among themselves.
    """
    change = _kept(row, evidence, terms, sent=sent)
    if isinstance(lookup, CouldNotAsk):
        # The question failed: it counts as nothing and uses up no look (hazard 27).
        wait = backoff(row.failures, base=terms.contract.schedule[0], cap=60 * terms.contract.schedule[0])
        if (left := until_scheduled(row)) is not None:
            wait = min(wait, left)
        if lookup.retry_after is not None:
            wait = max(wait, not_before(min(lookup.retry_after, terms.contract.retry_after_cap)))
        if row.cancel_sent and sent:
            # A cancel of ours may be under way: what is seen before its end may not stand.
            wait = max(wait, terms.contract.flight_limit + EDGE)
        if late := overdue(row, terms):
            wait = max(wait, terms.contract.pending_schedule[-1])
        return dataclasses.replace(change, due_in=wait, failures=row.failures + 1, letters=late, keeps_schedule=True)
    if row.status is OutboxStatus.AWAITING:
        # The provider had accepted it: that it has nothing now is a contradiction, never a verdict (hazard 68). Before
        # the consistency horizon it says nothing: what was accepted just now need not be visible yet.
        letters = overdue(row, terms)
        if row.claim_age is not None and 0 <= row.claim_age < row.status_age - terms.contract.lookup.horizon:
            gone = {"first": "pending", "second": "absent", "reference": row.reference}
            letters = (*letters, DeadLetter(Reason.CONFLICT, gone))
        if (left := until_scheduled(row)) is not None:
            return dataclasses.replace(change, due_in=left, letters=letters)
        schedule = terms.contract.pending_schedule
        due = DAY if overdue(row, terms) else schedule[min(row.lookups + 1, len(schedule) - 1)]
        lookups = min(row.lookups + 1, MOST_LOOKUPS)
        return dataclasses.replace(change, lookups=lookups, due_in=not_before(due), letters=letters)
    absences = row.absences + 1
    enough = absences >= terms.contract.lookup.agree and not row.contradicted and not may_act_late(terms.contract, row)
    # Lost commits have rendered it: whether that request named what is asked for is not known.
    enough = enough and (row.frozen or row.inline)
    if not sent and enough and _asked_late_enough(row, terms.contract):
        return _proven_absent(row, evidence, terms, absences)
    return answered(dataclasses.replace(change, absences=absences), row, terms)


def answered(change: Change, row: OutboxRow, terms: Terms) -> Change:
    """An answer that decided nothing uses up a look of the schedule, if it was one; the last opens a dead letter.

    The entry comes each time, not when the count is reached: a schedule that was made shorter has rows beyond it.
    """
    schedule = terms.contract.schedule
    if (left := until_scheduled(row)) is not None:
        due = _inside_the_window(row, min(left, _quiet_in(row, change, terms) or left), terms)
        return dataclasses.replace(change, lookups=row.lookups, failures=0, due_in=due)
    lookups = row.lookups + 1
    if lookups >= len(schedule):
        due = _inside_the_window(row, min(not_before(DAY), _quiet_in(row, change, terms) or DAY), terms)
        details: dict[str, object] = {"lookups": lookups, "absences": change.absences or row.absences}
        if may_act_late(terms.contract, row):
            details["why"] = (
                "the provider answered with a 5xx and may still carry it out, so its absence proves nothing"
            )
        exhausted = DeadLetter(Reason.RECONCILE_EXHAUSTED, details)
        return dataclasses.replace(
            change, lookups=min(lookups, MOST_LOOKUPS), failures=0, due_in=due, letters=(exhausted,)
        )
    due = not_before(schedule[lookups])
    enough = (change.absences or row.absences) + 1 >= terms.contract.lookup.agree
    if enough and terms.contract.lookup.possible and not row.contradicted:
        # The next look could decide, if it is asked late enough: neither wait longer, nor ask in vain before.
        left = quiet_left(row, change, terms.contract) + terms.contract.lookup.horizon
        due = min(due, max(left + EDGE, schedule[0]))
    return dataclasses.replace(change, lookups=lookups, failures=0, due_in=_inside_the_window(row, due, terms))


def explained(change: Change, why: str | None) -> Change:
    """With the reason in every entry that it opens."""
    if why is None:
        return change
    letters = tuple(dataclasses.replace(each, details={**each.details, "why": why}) for each in change.letters)
    return dataclasses.replace(change, letters=letters)


def _quiet_in(row: OutboxRow, change: Change, terms: Terms) -> float | None:
    # When an absence can first be believed, if that is still to come and nothing was sent now: a row whose look-ups are
    # used up before is asked then, not a day later.
    if change.quiet_for is not None or not terms.contract.lookup.possible or row.contradicted:
        return None
    left = quiet_left(row, change, terms.contract) + terms.contract.lookup.horizon + EDGE
    return left if left > EDGE else None


def voided_at_provider(row: OutboxRow, evidence: Evidence, terms: Terms) -> Change:
    """The provider says that nothing stands under the key, or will: proven not executed at once.

    Whether it was asked late enough stood in the statement that began the cancel; the key is burned since then. Never
    against an open contradiction.
    """
    if row.contradicted:
        return answered(_kept(row, evidence, terms, sent=True), row, terms)
    if row.doubted_for is not None:
        # Only this key is cancelled. In what the database has forgotten it may have been cancelled before, and the
        # call made under the next one, of which nobody can be asked: a person decides.
        why = "its key is cancelled, but lost commits may have sent it under another key"
        change = answered(_kept(row, evidence, terms, sent=False), row, terms)
        letters = (
            *change.letters,
            DeadLetter(Reason.RECONCILE_EXHAUSTED, {"why": why, "provider_key": row.provider_key}),
        )
        return dataclasses.replace(change, due_in=not_before(DAY), letters=letters)
    details = {**evidence.details, "cancelled_key": row.provider_key}
    settled = dataclasses.replace(evidence, details=details)
    return dataclasses.replace(
        decide.verdict(row, settled, terms), lookups=min(row.lookups + 1, MOST_LOOKUPS), word="ends"
    )


def outlasts(stored: StoredProof) -> bool:
    """Whether a proof that waits speaks against a cancel's "nothing stands". A refusal is the same news."""
    return not stored.undone and not isinstance(stored.proof, Refused)


def contradicted(row: OutboxRow, stored: Sequence[StoredProof], evidence: Evidence, terms: Terms) -> Change:
    """The cancel says that nothing exists, and a stored proof says that something does: a person decides."""
    shown = [p for p in stored if outlasts(p)]
    details = {"first": name(shown[0].proof), "second": "cancelled", "reference": shown[0].proof.reference}
    change = answered(_kept(row, evidence, terms, sent=True), row, terms)
    return dataclasses.replace(change, letters=(*change.letters, DeadLetter(Reason.CONFLICT, details)))


def not_askable(row: OutboxRow, evidence: Evidence, terms: Terms) -> Change:
    """Nothing can be asked about this row: it waits for a proof or for an operator, and is looked at once a day.

    Where an event can still bring the proof, an operator is called only when the schedule is used up.
    """
    if row.status is OutboxStatus.UNKNOWN and terms.contract.events_settle:
        return answered(_kept(row, evidence, terms, sent=False), row, terms)
    letter = DeadLetter(Reason.NOT_SETTLEABLE, {"provider": terms.contract.provider})
    letters = (letter,) if row.status is OutboxStatus.UNKNOWN else overdue(row, terms)
    return dataclasses.replace(
        _kept(row, evidence, terms, sent=False), due_in=min(DAY, until_scheduled(row) or DAY), letters=letters
    )


def _inside_the_window(row: OutboxRow, due: float, terms: Terms) -> float:
    # One last look before the replay window closes: after it the provider's own memory cannot be asked any more.
    left = memory_left(row.replay_window, row.memory_age, terms.contract)
    if left is None or row.key_burned:
        return due
    last = left - terms.contract.schedule[0]
    return last if 0 < last < due else due


def _kept(row: OutboxRow, evidence: Evidence, terms: Terms, *, sent: bool) -> Change:
    return dataclasses.replace(
        decide.unchanged(row, evidence, terms),
        error_code="outcome_unknown" if row.status is OutboxStatus.UNKNOWN else None,
        quiet_for=terms.contract.flight_limit if sent else None,
        alone=True,
    )


def _proven_absent(row: OutboxRow, evidence: Evidence, terms: Terms, absences: int) -> Change:
    seen = {**evidence.details, "absences": absences, "horizon": terms.contract.lookup.horizon}
    settled = dataclasses.replace(evidence, details=seen)
    proven = decide.verdict(row, settled, terms)
    return dataclasses.replace(proven, absences=absences, lookups=row.lookups + 1, word="ends")


def _asked_late_enough(row: OutboxRow, contract: Contract) -> bool:
    if row.quiet_left is None or row.claim_age is None or row.claim_age < 0:
        # A claim from the future: the database's clock went back since, and it is not known when it asked.
        return False
    quiet = max(row.quiet_left, flight_left(row, contract))
    return quiet + contract.lookup.horizon + row.claim_age < 0


def quiet_left(row: OutboxRow, change: Change, contract: Contract) -> float:
    """Seconds for which something sent may still act, counting what this change adds; 0 or less: nothing can."""
    left = row.quiet_left if row.quiet_left is not None else contract.flight_limit + contract.pause_allowance
    return max(left, change.quiet_for or 0.0, flight_left(row, contract))
