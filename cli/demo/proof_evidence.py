"""P4: no change without evidence. The check walks the rows of each intent from accept to its current state."""

from collections.abc import Iterator

from idem.cli.demo.database_record import EvidenceRow
from idem.cli.demo.proof_records import FROM_CLAIM, BrokenPromise, ProofCall, ProofCase, Records, follows

ENDS_OF_CLAIMS = frozenset({"report", "late_result", "late_not_executed", "swept"})
"""How a worker's claim ends: reported, given back (a report too) or swept."""
ENDS_OF_LOOKUP_CLAIMS = ENDS_OF_CLAIMS | {"replay", "lookup", "replay_lost", "lookup_lost", "claim_expired"}
"""And of a reconciler's replay, an attempt of its own. `lookup`: the replay showed nothing, and a look-up followed."""


def chain(records: Records) -> Iterator[BrokenPromise]:
    """Changes of state without evidence."""
    for case in records.cases:
        yield from _walk(case)


def ends(records: Records) -> Iterator[BrokenPromise]:
    """Attempts without a recorded end."""
    for case in records.cases:
        for call in case.calls:
            yield from _ends(case, call, keyless=call.provider in records.rules.keyless)


def ends_of_steps(records: Records) -> Iterator[BrokenPromise]:
    """Ends of steps that are not in evidence, and the other way round."""
    for case in records.cases:
        if not case.is_flow:
            continue
        for call in case.calls:
            recorded = sum(row.ends_step for row in call.evidence)
            if recorded != (call.end is not None):
                seen = f"evidence: {recorded} ends; steps: {call.end.outcome if call.end else 'none'}"
                yield case.finding("P4", "the end of a step differs from its evidence", seen, call=call)
        last = max((call.number for call in case.calls if call.end is not None), default=0)
        if case.intent.recovery_point != last:
            seen = f"database: recovery point {case.intent.recovery_point}, last end {last}"
            yield case.finding("P4", "the recovery point is not the last step that ended", seen)


def _ends(case: ProofCase, call: ProofCall, *, keyless: bool) -> Iterator[BrokenPromise]:
    kinds = ENDS_OF_CLAIMS if keyless else ENDS_OF_LOOKUP_CLAIMS
    ended = {row.attempt for row in call.evidence if row.kind in kinds}
    last = max((row.attempt or 0 for row in call.evidence), default=0)
    last = max(last, call.attempt or 0)
    is_running = case.intent.status in ("claimed", "unknown", "awaiting") and (call.is_open or call.step is None)
    for attempt in range(1, last + 1):
        if attempt not in ended and not (is_running and attempt == last):
            yield case.finding("P4", "an attempt has no end in evidence", f"evidence: no end of #{attempt}", call=call)


def _walk(case: ProofCase) -> Iterator[BrokenPromise]:
    changes = [row for row in case.evidence if row.is_change or row.begins_step]
    if not changes or changes[0].kind != "accepted":
        yield case.finding("P4", "there is no evidence of accept", f"evidence: {_listed(changes)}")
        return
    state, status = changes[0].to_state, changes[0].to_status
    for row in changes[1:]:
        if not follows(row, state, status):
            seen = f"evidence: {state}/{status}, then {row}"
            yield case.finding("P4", "a change of state without evidence", seen, f"all: {_listed(changes)}")
            return
        state, status = row.to_state or state, row.to_status
    claimed = case.intent.status == "claimed" and status in FROM_CLAIM
    if case.intent.state != state or not (case.intent.status == status or claimed):
        seen = f"evidence ends with {state}/{status or 'gone'}"
        yield case.finding("P4", "the last change of state is without evidence", seen)


def _listed(rows: list[EvidenceRow]) -> str:
    return ", ".join(map(str, rows)) or "none"
