"""From a look to a change: pure. What counts, what proves, and when to ask again."""

from __future__ import annotations

import dataclasses

from idem.outbox import decide
from idem.outbox.backoff import backoff, not_before
from idem.outbox.change import Change, Evidence, Letter, Row
from idem.outbox.contract import Contract
from idem.outbox.endings import overdue
from idem.outbox.outcomes import Absent, CouldNotAsk
from idem.outbox.states import OutboxStatus, Reason
from idem.outbox.terms import Terms

DAY = 86400.0
"""Seconds: how often a row is still asked about when its schedule is used up."""
EDGE = 0.05
"""Seconds past the quiet time at which the deciding look is made."""


def undecided(row: Row, look: Absent | CouldNotAsk, evidence: Evidence, terms: Terms, *, sent: bool) -> Change:
    """A look that found nothing, or a question that failed. `sent`: the take made an attempt that can still act.

    `Absent` becomes "proven not executed" only when enough looks agree and the last of them was asked when the quiet
    time and the consistency horizon had passed (hazards 1, 2, 54); never against proofs on record, however much these
    disagree among themselves.
    """
    change = _kept(row, evidence, terms, sent=sent)
    if isinstance(look, CouldNotAsk):
        # The question failed: it counts as nothing and uses up no look (hazard 27).
        wait = backoff(row.misses, base=terms.contract.schedule[0], cap=60 * terms.contract.schedule[0])
        if look.retry_after is not None:
            wait = max(wait, not_before(min(look.retry_after, terms.contract.retry_after_cap)))
        if late := overdue(row, terms):
            wait = max(wait, terms.contract.pending_schedule[-1])
        return dataclasses.replace(change, due_in=wait, misses=row.misses + 1, letters=late)
    if row.status is OutboxStatus.AWAITING:
        # The provider had accepted it: that it has nothing now is a contradiction, never a verdict (hazard 68). Before
        # the consistency horizon it says nothing: what was accepted just now need not be visible yet.
        letters = overdue(row, terms)
        if row.claim_age is not None and row.status_age - row.claim_age > terms.contract.lookup.horizon:
            gone = {"first": "pending", "second": "absent", "reference": row.reference}
            letters = (*letters, Letter(Reason.CONFLICT, gone))
        schedule = terms.contract.pending_schedule
        due = schedule[min(row.looks + 1, len(schedule) - 1)]
        return dataclasses.replace(change, looks=row.looks + 1, due_in=not_before(due), letters=letters)
    absents = row.absents + 1
    enough = absents >= terms.contract.lookup.agree and not row.contradicted
    if not sent and enough and _asked_late_enough(row, terms.contract):
        return _proven_absent(row, evidence, terms, absents)
    return answered(dataclasses.replace(change, absents=absents), row, terms)


def answered(change: Change, row: Row, terms: Terms) -> Change:
    """An answer that decided nothing uses up a rung of the schedule; the last rung opens a dead letter."""
    schedule = terms.contract.schedule
    looks = row.looks + 1
    if looks >= len(schedule):
        due = _inside_the_window(row, not_before(DAY), terms)
        exhausted = Letter(Reason.RECONCILE_EXHAUSTED, {"looks": looks, "absents": change.absents or row.absents})
        letters = (exhausted,) if looks == len(schedule) else ()
        return dataclasses.replace(change, looks=min(looks, 30000), misses=0, due_in=due, letters=letters)
    due = not_before(schedule[looks])
    enough = (change.absents or row.absents) + 1 >= terms.contract.lookup.agree
    if enough and terms.contract.lookup.possible and not row.contradicted:
        # The next look could decide, if it is asked late enough: neither wait longer, nor ask in vain before.
        due = min(due, max(_quiet_left(row, change, terms.contract) + EDGE, schedule[0]))
    return dataclasses.replace(change, looks=looks, misses=0, due_in=_inside_the_window(row, due, terms))


def not_askable(row: Row, evidence: Evidence, terms: Terms) -> Change:
    """Nothing can be asked about this row: it waits for a proof or for an operator, and is looked at once a day.

    Where an event can still bring the proof, an operator is called only when the schedule is used up.
    """
    if row.status is OutboxStatus.UNKNOWN and terms.contract.events:
        return answered(_kept(row, evidence, terms, sent=False), row, terms)
    letter = Letter(Reason.NOT_SETTLEABLE, {"provider": terms.contract.provider})
    letters = (letter,) if row.status is OutboxStatus.UNKNOWN else overdue(row, terms)
    return dataclasses.replace(_kept(row, evidence, terms, sent=False), due_in=DAY, letters=letters)


def _inside_the_window(row: Row, due: float, terms: Terms) -> float:
    # One last look before the replay window closes: after it the provider's own memory cannot be asked any more.
    if not terms.contract.replays or row.window_left is None:
        return due
    last = row.window_left - terms.contract.schedule[0]
    return last if 0 < last < due else due


def _kept(row: Row, evidence: Evidence, terms: Terms, *, sent: bool) -> Change:
    return Change(
        row_id=row.id,
        token=row.token,
        attempt=row.attempt,
        status=row.status,
        state=row.state,
        evidence=evidence,
        answer_ttl=terms.operation.answer_ttl,
        error_code="outcome_unknown" if row.status is OutboxStatus.UNKNOWN else None,
        quiet_for=terms.contract.flight_limit if sent else None,
        alone=True,
    )


def _proven_absent(row: Row, evidence: Evidence, terms: Terms, absents: int) -> Change:
    seen = {**evidence.details, "absents": absents, "horizon": terms.contract.lookup.horizon}
    settled = dataclasses.replace(evidence, details=seen)
    return dataclasses.replace(decide.verdict(row, settled, terms), absents=absents, looks=row.looks + 1)


def _asked_late_enough(row: Row, contract: Contract) -> bool:
    if row.quiet_left is None or row.claim_age is None:
        return False
    return row.quiet_left + contract.lookup.horizon + row.claim_age < 0


def _quiet_left(row: Row, change: Change, contract: Contract) -> float:
    left = row.quiet_left if row.quiet_left is not None else contract.flight_limit + contract.pause_allowance
    return max(left, change.quiet_for or 0.0) + contract.lookup.horizon
