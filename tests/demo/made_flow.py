"""Records of a flow made by hand, step by step, which a test then spoils."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from demo.conftest import HEADERS, RULES, change, evidence

from idem.cli.demo import flows
from idem.cli.demo.client_log import LogLine
from idem.cli.demo.database_record import DatabaseRecord, DeadLetterRow, EvidenceRow, FrozenRow, IntentRow, StepRow
from idem.cli.demo.proof import DemoProof, prove
from idem.cli.demo.proof_records import Records
from idem.cli.demo.scenario import flow_operation
from idem.testing.bank import Log, Payment, Received
from idem.testing.bank.records import EndedRequest, Record

OPERATION = flow_operation("bank")
STEPS = flows.expected()[OPERATION]
NUMBERS = {step.name: number for number, step in enumerate(STEPS, 1)}


@dataclass
class MadeFlow:
    """One flow and the three records of it. `at` is the time of the last thing that happened."""

    intent: IntentRow = field(
        default_factory=lambda: IntentRow(
            id="i1", key="k1", operation=OPERATION, provider=None, state="in_progress", outcome=None, reference=None,
            key_state="in_progress", order="order-1",
        )
    )  # fmt: skip
    evidence: list[EvidenceRow] = field(default_factory=list)
    requests: list[FrozenRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    bank: list[Record] = field(default_factory=list)
    letters: list[DeadLetterRow] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    partial: frozenset[str] = frozenset()
    at: float = 10.0

    def begin(self, name: str) -> None:
        """The row of a step, rendered, and its frozen request."""
        number = NUMBERS[name]
        if number == 1:
            self._change("accept", "accepted", "/", "in_progress/unfrozen", step=1, attempt=0)
        else:
            # The statement that ended the step before wrote this too, and with an earlier id.
            at = self.evidence[-1].at
            row = evidence(len(self.evidence), at, "worker", "begun", to_status="unfrozen", step=number, attempt=0)
            self.evidence.insert(-1, replace(row, id=f"{int(at * 1000) - 3:012x}-{len(self.evidence):04}"))
        self.at += 0.1
        self._change("worker", "rendered", "in_progress/unfrozen", "in_progress/pending", step=number, attempt=0)
        self.requests.append(FrozenRow("i1", STEPS[number - 1].provider, f"pk{number}", "b" * 64, number))

    def send(self, name: str, *, done: bool | None = True, key: str | None = None) -> str:
        """One request of a step at the bank: done, declined, or (None) without an effect. Returns the payment's id."""
        step, number = STEPS[NUMBERS[name] - 1], len(self.bank) + 1
        self.at += 0.1
        key, keyed = key or f"pk{NUMBERS[name]}", step.provider == "bank"
        request = Received(
            id=number, at=self.at, account=step.provider, method="POST",
            path=f"/payments?order={self.intent.order}&step={name}", key=key if keyed else None,
            reference=None if keyed else key, body_sha256="b" * 64, nth=1, fault=None,
        )  # fmt: skip
        self.bank.append(request)
        made = f"pay_{number}"
        if done is not None:
            self.bank.append(
                Payment(
                    id=made,
                    at=self.at,
                    request=number,
                    account=step.provider,
                    key=request.key,
                    reference=request.reference,
                    amount=1,
                    currency="eur",
                    status="succeeded" if done else "declined",
                    becomes=None,
                    settles_at=None,
                    fingerprint="",
                    answer_status=201,
                    answer_body="",
                )
            )
        self.bank.append(EndedRequest(number, self.at, 201, None if done is None else "made", made))
        return made

    def end(self, name: str, outcome: str, reference: str | None, *, ends: bool = False, rests: bool = False) -> None:
        """The end of a step: the next one follows, or (`ends`) the flow is over, or (`rests`) an operator decides."""
        self.at += 0.1
        number = NUMBERS[name]
        to = "completed/" if ends else "failed_retryable/held" if rests else "in_progress/"
        more = {"step": number, "attempt": 1, "outcome": outcome}
        self._change("worker", "report", "in_progress/claimed", to, **more)
        if rests:
            self.letters.append(DeadLetterRow("i1", "partial", self.at, open=True))
            self.becomes(state="failed_retryable", key_state="failed_retryable", status="held", step=number)
            return
        self.steps.append(StepRow("i1", number, name, outcome, reference))
        self.becomes(recovery_point=number)

    def make(self, name: str, *, done: bool = True, ends: bool = False, rests: bool = False) -> None:
        """A step from its beginning to its end."""
        self.begin(name)
        made = self.send(name, done=done)
        self.end(name, "succeeded" if done else "refused", made, ends=ends, rests=rests)

    def answer(self, outcome: str) -> None:
        """The flow is completed, and its client has the answer."""
        told = {row.name: row.outcome for row in self.steps}
        self.becomes(
            state="completed", key_state="completed", outcome=outcome, answer_status=201, answer_headers=HEADERS,
            answer_sha256="a" * 64, answer_steps=told,
        )  # fmt: skip
        for said, answer in (
            ("accepted", {}),
            ("replay", {"status": 201, "headers": HEADERS, "body_sha256": "a" * 64}),
        ):
            self.lines.append(
                LogLine(
                    at=self.at, key="k1", operation=OPERATION, asked="poll", said=said, committed=True, intent="i1",
                    **answer,
                )  # type: ignore[arg-type]
            )  # fmt: skip

    def becomes(self, **fields: Any) -> None:
        self.intent = replace(self.intent, **fields)

    def prove(self) -> DemoProof:
        rules = replace(RULES, flows=flows.expected(), partial=self.partial)
        database = DatabaseRecord([self.intent], self.requests, self.evidence, self.letters, (), self.steps)
        return prove(Records(self.lines, database, Log(self.bank), rules))

    def findings(self) -> list[tuple[str, str]]:
        """Promise and what, of each finding; each must name the intent."""
        found = self.prove().findings
        assert all(f.intent in ("i1", None) and f.seen for f in found)
        return [(f.promise, f.what) for f in found]

    def _change(self, source: str, kind: str, came: str, went: str, **more: Any) -> None:
        self.evidence.append(change(len(self.evidence), self.at, source, kind, came, went, **more))


def succeeded() -> MadeFlow:
    """All three steps done."""
    flow = MadeFlow()
    for name in ("reserve", "charge", "receipt"):
        flow.make(name, ends=name == "receipt")
    flow.answer("succeeded")
    return flow


def refused() -> MadeFlow:
    """The receipt is refused, and both steps before it are undone."""
    flow = MadeFlow()
    for name in ("reserve", "charge", "receipt", "refund", "release"):
        flow.make(name, done=name != "receipt", ends=name == "release")
    flow.answer("refused")
    return flow


def partial() -> MadeFlow:
    """The receipt is refused, and so is the refund."""
    flow = MadeFlow(partial=frozenset({"k1"}))
    for name in ("reserve", "charge", "receipt"):
        flow.make(name, done=name != "receipt")
    flow.make("refund", done=False, rests=True)
    return flow


def each() -> Iterator[MadeFlow]:
    yield from (succeeded(), refused(), partial())
