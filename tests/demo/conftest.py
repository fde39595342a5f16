"""Records made by hand: one good payment of each kind, which a test then spoils."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from idem.cli.demo.client_log import LogLine
from idem.cli.demo.database_record import DatabaseRecord, DeadLetterRow, EvidenceRow, FrozenRow, IntentRow
from idem.cli.demo.proof import DemoProof, prove
from idem.cli.demo.proof_records import ProofRules, Records
from idem.testing.bank import Log, Payment, Received
from idem.testing.bank.records import EndedRequest, Record

RULES = ProofRules(
    flight_limit=6, pause_allowance=15, horizon=3, agree=2, retention=4000, margin=21, keyless=frozenset({"oldbank"})
)
HEADERS = {"content-type": "application/json"}
BODY = "b" * 64


def evidence(n: int, at: float, source: str, kind: str, **more: Any) -> EvidenceRow:
    """The n-th row of evidence of intent i1."""
    return EvidenceRow(intent="i1", id=f"{int(at * 1000):012x}-{n:04}", at=at, source=source, kind=kind, **more)


def change(n: int, at: float, source: str, kind: str, came: str, went: str, **more: Any) -> EvidenceRow:
    """A change of state, written `state/status` to `state/status`; `completed/` has no status."""
    (from_state, from_status), (to_state, to_status) = ([p or None for p in x.split("/")] for x in (came, went))
    return evidence(
        n, at, source, kind,
        from_state=from_state, from_status=from_status, to_state=to_state, to_status=to_status, **more,
    )  # fmt: skip


ACCEPTED = change(0, 10.0, "accept", "accepted", "/", "in_progress/pending", attempt=0)


@dataclass
class Made:
    """The three records of one intent, to be changed before `prove`."""

    intent: IntentRow
    lines: list[LogLine]
    evidence: list[EvidenceRow]
    requests: list[FrozenRow]
    bank: list[Record]
    letters: list[DeadLetterRow]
    rules: ProofRules = RULES
    unapplied: tuple[str, ...] = ()

    def change(self, at: float, source: str, kind: str, came: str, went: str, **more: Any) -> None:
        """Append a change of state."""
        self.evidence.append(change(len(self.evidence), at, source, kind, came, went, **more))

    def look(self, at: float, outcome: str, went: str = "unknown/unknown", **more: Any) -> None:
        """Append a look of the reconciler at an unknown."""
        self.change(at, "reconciler", "lookup", "unknown/unknown", went, outcome=outcome, claimed_at=at, **more)

    def becomes(self, **fields: Any) -> None:
        self.intent = replace(self.intent, **fields)

    def attempt_is(self, number: int) -> None:
        """The number of the attempt whose end is in evidence."""
        self.evidence[1] = replace(self.evidence[1], attempt=number)

    def prove(self) -> DemoProof:
        database = DatabaseRecord([self.intent], self.requests, self.evidence, self.letters, self.unapplied)
        return prove(Records(self.lines, database, Log(self.bank), self.rules))

    def findings(self) -> list[tuple[str, str]]:
        """Promise and what, of each finding; each must name the intent and show all sides."""
        found = self.prove().findings
        assert all(f.intent in ("i1", None) and f.seen for f in found)
        return [(f.promise, f.what) for f in found]

    def send(self, number: int, at: float, *, effect: str | None = "made", charged: bool = True, **more: Any) -> None:
        """One request at the bank, with what it did."""
        keyed = self.intent.provider == "bank"
        request = Received(
            id=number, at=at, account=self.intent.provider, method="POST", path="/payments",
            key="pk1" if keyed else None, reference=None if keyed else "pk1", body_sha256=BODY, nth=number, fault=None,
        )  # fmt: skip
        request = replace(request, **more)
        self.bank.append(request)
        if effect == "made":
            self.bank.append(self._payment(f"pay_{number}", request, "succeeded" if charged else "declined"))
        self.bank.append(EndedRequest(number, at, 201 if effect else 429, effect, f"pay_{number}" if effect else None))

    def say(self, said: str, at: float, asked: str = "poll", **more: Any) -> None:
        """A client is told something."""
        answer = {"status": 201, "headers": HEADERS, "body_sha256": "a" * 64} if said == "replay" else {}
        values = {"intent": "i1", "committed": True, **answer, **more}
        self.lines.append(LogLine(at=at, key="k1", operation="pay", asked=asked, said=said, **values))  # type: ignore[arg-type]

    def _payment(self, name: str, request: Received, status: str) -> Payment:
        return Payment(
            id=name, at=request.at, request=request.id, account=request.account or "", key=request.key,
            reference=request.reference, amount=1, currency="eur", status=status, becomes=None, settles_at=None,
            fingerprint="", answer_status=201, answer_body="",
        )  # fmt: skip


@pytest.fixture
def make() -> Callable[..., Made]:
    """`make("bank")` or `make("oldbank")`: accepted, sent once, answered, asked about twice more."""

    def made(provider: str = "oldbank") -> Made:
        intent = IntentRow(
            id="i1", key="k1", operation="pay", provider=provider, state="completed", outcome="succeeded",
            reference="pay_1", key_state="completed", answer_status=201, answer_headers=HEADERS,
            answer_sha256="a" * 64,
        )  # fmt: skip
        report = change(
            1, 10.2, "worker", "report", "in_progress/claimed", "completed/", attempt=1, outcome="succeeded"
        )
        record = Made(intent, [], [ACCEPTED, report], [FrozenRow("i1", provider, "pk1", BODY)], [], [])
        record.say("accepted", 10.0, "pay")
        for at in (10.5, 11.0, 12.0):
            record.say("replay", at, "after" if at > 10.5 else "poll")
        record.send(1, 10.1)
        return record

    return made


@pytest.fixture
def made(make: Callable[..., Made]) -> Made:
    return make()


@pytest.fixture
def begun(made: Made) -> Made:
    """Forget the good end: the intent is accepted, nothing was sent yet."""
    made.evidence[1:], made.bank[:] = [], []
    return made
