"""The proof compares the clients' log, the database and the bank's log. It does no I/O.

Each promise has its own file; this one runs all of them and counts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from idem.cli.demo import proof_answers, proof_evidence, proof_flows, proof_lost, proof_sends, proof_settled
from idem.cli.demo.proof_flows import FlowNumbers
from idem.cli.demo.proof_records import BrokenPromise, Records
from idem.cli.demo.proof_settled import SettleTime

Check = Callable[[Records], Iterator[BrokenPromise]]

LOST: tuple[Check, ...] = (proof_lost.lost,)
FORBIDDEN: tuple[Check, ...] = (proof_sends.forbidden_sends, proof_sends.believed_too_early)
DUPLICATES: tuple[Check, ...] = (proof_sends.duplicates,)
STRANGE: tuple[Check, ...] = (proof_lost.never_accepted,)
ANSWERS: tuple[Check, ...] = (proof_answers.answers, proof_answers.keys)
EVIDENCE: tuple[Check, ...] = (proof_evidence.chain, proof_evidence.ends, proof_evidence.ends_of_steps)
STEPS: tuple[Check, ...] = (proof_flows.ends, proof_flows.outcomes, proof_flows.order, proof_flows.keys)
UNSETTLED: tuple[Check, ...] = (proof_settled.unsettled,)
LETTERS: tuple[Check, ...] = (proof_settled.unexpected_letters,)


@dataclass(frozen=True, slots=True)
class DemoProof:
    """The numbers of a demo and every broken promise. No finding: every promise held."""

    accepted: int
    effects_wanted: int
    effects_made: int
    refused: int
    requests_made: int
    second_sends: int
    forbidden_sends: int
    duplicates: int
    lost: int
    answers_changed: int
    answers_compared: int
    evidence_missing: int
    steps_wrong: int
    unsettled: int
    letters_expected: int
    letters_unexpected: int
    claims_lost: int
    flows: FlowNumbers
    settled: Mapping[str, SettleTime]
    faults: Mapping[str, int]
    findings: Sequence[BrokenPromise]

    @property
    def holds(self) -> bool:
        """Whether every promise held."""
        return not self.findings


def prove(records: Records) -> DemoProof:
    """Check every promise against the three records."""
    found: dict[tuple[Check, ...], list[BrokenPromise]] = {
        group: [finding for check in group for finding in check(records)]
        for group in (LOST, FORBIDDEN, DUPLICATES, STRANGE, ANSWERS, EVIDENCE, STEPS, UNSETTLED, LETTERS)
    }
    cases = records.cases
    refused = [case for case in cases if case.intent.outcome == "refused"]
    plain = [case for case in cases if not case.is_flow and case not in refused]
    rejected = [case for case in plain if case.intent.key in records.rules.rejected]
    return DemoProof(
        accepted=len({line.key for line in records.clients if line.is_acceptance}),
        effects_wanted=len(plain) - len(rejected) + sum(proof_flows.wanted(case) for case in cases if case.is_flow),
        effects_made=len(records.bank.effects()),
        refused=len(refused),
        requests_made=len(records.bank.sends()),
        second_sends=sum(max(0, len(call.sends) - 1) for case in cases for call in case.calls),
        forbidden_sends=len(found[FORBIDDEN]),
        duplicates=sum(max(0, len(call.charged) - 1) for case in cases for call in case.calls) + len(records.strangers),
        lost=len(found[LOST]),
        answers_changed=len(found[ANSWERS]),
        answers_compared=Counter(line.said for line in records.clients)["replay"],
        evidence_missing=len(found[EVIDENCE]),
        steps_wrong=len(found[STEPS]),
        unsettled=len(found[UNSETTLED]),
        letters_expected=len(proof_settled.expected_letters(records)),
        letters_unexpected=len(found[LETTERS]),
        claims_lost=sum(row.kind in ("swept", "claim_expired") for row in records.database.evidence),
        flows=proof_flows.numbers(records),
        settled=proof_settled.settle_times(records),
        faults=dict(records.bank.faults()),
        findings=[finding for findings in found.values() for finding in findings],
    )
