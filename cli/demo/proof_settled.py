"""P5: nothing stays unsettled without a dead letter; how each unknown was settled, and how fast."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from idem.cli.demo.database_record import DeadLetterRow, EvidenceRow
from idem.cli.demo.proof_records import BrokenPromise, ProofCase, Records

OPEN = frozenset({"approval", "pending", "claimed", "unknown", "awaiting", "waiting", "unfrozen"})

PARTIAL = frozenset({"partial"})
"""How a flow ends whose refund the bank refuses."""
ORDERED = frozenset({"rejected", "reconcile_exhausted"})
"""How a payment that the bank rejects ends: held, or, if its worker was killed during the call, unknown without a
settling replay, because a refused replay proves nothing about the first send.
"""


@dataclass(frozen=True, slots=True)
class SettleTime:
    """How unknowns of one kind were settled: how many, seconds at the median, at the 99th percentile, at most."""

    count: int
    p50: float
    p99: float
    longest: float


def unsettled(records: Records) -> Iterator[BrokenPromise]:
    """What is still open at the end, and proofs that were not applied."""
    unapplied = set(records.database.unapplied)
    for case in records.cases:
        has_letter = any(letter.open for letter in case.letters)
        if case.intent.status in OPEN and not has_letter:
            yield case.finding("P5", "left unsettled at the end")
        elif case.intent.status == "held" and not has_letter:
            yield case.finding("P5", "at rest without a dead letter")
        if case.intent.id in unapplied:
            yield case.finding("P5", "a stored proof was not applied")


def unexpected_letters(records: Records) -> Iterator[BrokenPromise]:
    """Dead letters that the demo did not plan, and planned ones that are missing."""
    for case in records.cases:
        planned = _planned(case, records)
        for letter in case.letters:
            if letter.reason not in planned:
                state = "open" if letter.open else "resolved"
                yield case.finding("P5", "an unexpected dead letter", f"database: {letter.reason}, {state}")
        if planned and not any(letter.reason in planned and letter.open for letter in case.letters):
            yield case.finding("P5", "a dead letter is missing", "the bank rejects this payment, or its refund")
    for letter in records.database.letters:
        if letter.intent is None:
            yield BrokenPromise("P5", "an unexpected dead letter", None, None, f"database: {letter.reason}")


def expected_letters(records: Records) -> list[DeadLetterRow]:
    """The dead letters that the demo plans."""
    return [letter for case in records.cases for letter in case.letters if letter.reason in _planned(case, records)]


def _planned(case: ProofCase, records: Records) -> frozenset[str]:
    if case.intent.key in records.rules.rejected:
        return ORDERED
    return PARTIAL if case.intent.key in records.rules.partial else frozenset()


def settle_times(records: Records) -> Mapping[str, SettleTime]:
    """How long each unknown stayed one, by how it was settled."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in records.cases:
        for how, spent in _episodes(case):
            seconds[how].append(spent)
    return {how: _summed(sorted(values)) for how, values in sorted(seconds.items())}


def _episodes(case: ProofCase) -> Iterator[tuple[str, float]]:
    since: float | None = None
    for row in case.evidence:
        if not row.is_change:
            continue
        if row.to_state == "unknown" and row.from_state != "unknown":
            since = row.at
        elif row.from_state == "unknown" and row.to_state != "unknown" and since is not None:
            yield _how(row), row.at - since
            since = None


def _how(row: EvidenceRow) -> str:
    match row.kind, row.outcome:
        case "lookup", "absent":
            return "absent"
        case "lookup", _:
            return "found"
        case "replay", _:
            return "replay"
        case "late_result" | "late_not_executed", _:
            return "late result"
        case kind, _:
            return f"{row.source} {kind}"


def _summed(values: Sequence[float]) -> SettleTime:
    return SettleTime(len(values), _percentile(values, 0.5), _percentile(values, 0.99), values[-1])


def _percentile(values: Sequence[float], share: float) -> float:
    return values[max(0, math.ceil(share * len(values)) - 1)]
