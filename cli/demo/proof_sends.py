"""P2: no blind second call. Checks every second send against the contract, by the evidence and the bank's log."""

from collections.abc import Iterator, Sequence

from idem.cli.demo.database_record import EvidenceRow
from idem.cli.demo.proof_records import BrokenPromise, ProofCall, ProofCase, ProofRules, Records
from idem.testing.bank import Request

TOLERANCE = 0.01
"""Seconds by which two clocks of one machine, read one after the other, may seem to disagree."""

QUEUES = frozenset({"pending", "waiting"})


def duplicates(records: Records) -> Iterator[BrokenPromise]:
    """Calls that were charged more than once, and refusals that were charged."""
    for case, call in _calls(records):
        if len(call.charged) > 1:
            made = f"payments {', '.join(p.id for p in call.charged)}"
            yield case.finding("P2", "a duplicate effect", made, call=call)
        if call.step is None and case.intent.outcome in ("refused", "cancelled", "rejected") and call.charged:
            yield case.finding("P2", "answered as refused, but charged")


def forbidden_sends(records: Records) -> Iterator[BrokenPromise]:
    """Second sends that the contract forbids, and sends without an attempt."""
    for case, call in _calls(records):
        if call.provider in records.rules.keyless:
            yield from _without_keys(case, call, records)
        else:
            yield from _with_keys(case, call, records)
        attempts = max((row.attempt or 0 for row in call.evidence), default=0)
        attempts = max(attempts, call.attempt or 0)
        if len(call.sends) > attempts:
            seen = f"database: {attempts} attempts"
            yield case.finding("P2", "more requests than attempts", seen, call=call)


def believed_too_early(records: Records) -> Iterator[BrokenPromise]:
    """Absences that idem accepted as proof before the rules allow it."""
    for case, call in _calls(records):
        for number, row in enumerate(call.evidence):
            if row.outcome == "absent" and row.from_status == "unknown" and row.to_status == "held":
                yield from _verdict(case, call.evidence[:number], row, records.rules)


def _calls(records: Records) -> Iterator[tuple[ProofCase, ProofCall]]:
    return ((case, call) for case in records.cases for call in case.calls)


def proven_not_executed(before: Sequence[EvidenceRow]) -> bool:
    """Whether the evidence up to a moment says that nothing sent so far can have acted."""
    changes = [row for row in before if row.is_change]
    return bool(changes) and changes[-1].to_status in QUEUES


def _without_keys(case: ProofCase, call: ProofCall, records: Records) -> Iterator[BrokenPromise]:
    for earlier, later in zip(call.sends, call.sends[1:], strict=False):
        at = records.at_bank(later.at)
        before = [row for row in call.evidence if row.at <= at + TOLERANCE]
        between = [row for row in before if row.at >= records.at_bank(earlier.at) - TOLERANCE]
        how = _how(earlier, later)
        if not between or not proven_not_executed(before):
            last = between[-1] if between else "nothing in between"
            yield case.finding(
                "P2", "a forbidden second send: there was no proof that nothing had happened", how, str(last), call=call
            )
        elif acted := [send for send in call.sends if send.id < later.id and send.effect == "made"]:
            yield case.finding(
                "P2", "a forbidden second send: an earlier send had acted", how, _how(acted[0], later), call=call
            )


def _with_keys(case: ProofCase, call: ProofCall, records: Records) -> Iterator[BrokenPromise]:
    rules = records.rules
    frozen = {(row.provider_key, row.body_sha256) for row in call.requests}
    for send in call.sends:
        if (send.key, send.body_sha256) not in frozen:
            yield case.finding(
                "P2", "a request that differs from the frozen one", f"bank: request {send.id}", call=call
            )
    for send in call.sends[1:]:
        age = send.at - call.sends[0].at
        if age > rules.retention - rules.margin:
            seen = f"bank: request {send.id} {age:.1f} s after the first"
            yield case.finding("P2", "a forbidden second send: the bank may have forgotten the key", seen, call=call)


def _verdict(
    case: ProofCase, before: Sequence[EvidenceRow], verdict: EvidenceRow, rules: ProofRules
) -> Iterator[BrokenPromise]:
    quiet = max((_quiet_after(row, rules) for row in before), default=0.0) + rules.horizon
    asked = verdict.claimed_at if verdict.claimed_at is not None else verdict.at
    if asked < quiet - TOLERANCE:
        early = f"{quiet - asked:.1f} s before the quiet time and horizon had passed"
        yield case.finding("P2", "an absence was accepted too early", f"evidence: {verdict}, {early}")
    since = max((n for n, row in enumerate(before) if row.is_change and row.from_status != "unknown"), default=-1)
    lookups = 1 + sum(row.outcome == "absent" for row in before[since + 1 :])
    if lookups < rules.agree:
        yield case.finding(
            "P2", "an absence was accepted after too few look-ups", f"evidence: {verdict}, {lookups} look-ups"
        )


def _quiet_after(row: EvidenceRow, rules: ProofRules) -> float:
    """The time until which the call that ended with this row may still act; 0.0 if the row ends no call."""
    if row.kind == "report":
        return row.at + rules.flight_limit
    if row.kind == "swept" and row.claimed_until is not None:
        pause = 0.0 if row.details.get("holder_known") else rules.pause_allowance
        return row.claimed_until + rules.flight_limit + pause
    return 0.0


def _how(earlier: Request, later: Request) -> str:
    gap = later.at - earlier.at
    return f"bank: request {earlier.id} ({earlier.effect or 'no effect'}), then {later.id} {gap:.1f} s later"
