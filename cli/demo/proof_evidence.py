"""P4: no change without evidence. The check walks the rows of each intent from accept to its current state."""

from collections.abc import Iterator

from idem.cli.demo.database_record import EvidenceRow
from idem.cli.demo.proof_records import BrokenPromise, ProofCase, Records

ENDS_OF_CLAIMS = frozenset({"report", "late_result", "late_not_executed", "swept"})
"""How a worker's claim ends: reported, given back (a report too) or swept."""
ENDS_OF_LOOKUP_CLAIMS = ENDS_OF_CLAIMS | {"replay", "lookup", "replay_lost", "lookup_lost", "claim_expired"}
"""And of a reconciler's replay, an attempt of its own. `lookup`: the replay showed nothing, and a look-up followed."""

FROM_CLAIM = frozenset({"pending", "claimed"})
"""A claim moves `pending` to `claimed` without a row of evidence: its end has one."""


def chain(records: Records) -> Iterator[BrokenPromise]:
    """Changes of state without evidence."""
    for case in records.cases:
        yield from _walk(case)


def ends(records: Records) -> Iterator[BrokenPromise]:
    """Attempts without a recorded end."""
    for case in records.cases:
        keyless = case.intent.provider in records.rules.keyless
        kinds = ENDS_OF_CLAIMS if keyless else ENDS_OF_LOOKUP_CLAIMS
        ended = {row.attempt for row in case.evidence if row.kind in kinds}
        last = max((row.attempt or 0 for row in case.evidence), default=0)
        last = max(last, case.intent.attempt or 0)
        still_running = case.intent.status in ("claimed", "unknown", "awaiting")
        for attempt in range(1, last + 1):
            if attempt not in ended and not (still_running and attempt == last):
                yield case.finding("P4", "an attempt has no end in evidence", f"evidence: no end of #{attempt}")


def _walk(case: ProofCase) -> Iterator[BrokenPromise]:
    changes = [row for row in case.evidence if row.is_change]
    if not changes or changes[0].kind != "accepted":
        yield case.finding("P4", "there is no evidence of accept", f"evidence: {_listed(changes)}")
        return
    state, status = changes[0].to_state, changes[0].to_status
    for row in changes[1:]:
        claimed = row.from_status == "claimed" and status in FROM_CLAIM
        if row.from_state != state or not (row.from_status == status or claimed):
            seen = f"evidence: {state}/{status}, then {row}"
            yield case.finding("P4", "a change of state without evidence", seen, f"all: {_listed(changes)}")
            return
        state, status = row.to_state, row.to_status
    claimed = case.intent.status == "claimed" and status in FROM_CLAIM
    if case.intent.state != state or not (case.intent.status == status or claimed):
        seen = f"evidence ends with {state}/{status or 'gone'}"
        yield case.finding("P4", "the last change of state is without evidence", seen)


def _listed(rows: list[EvidenceRow]) -> str:
    return ", ".join(map(str, rows)) or "none"
