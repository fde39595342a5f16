"""The three records of the proof, joined by intent, and the form of a broken promise."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from idem.cli.demo.client_log import LogLine
from idem.cli.demo.database_record import DatabaseRecord, DeadLetterRow, EvidenceRow, FrozenRow, IntentRow, StepRow
from idem.cli.demo.flows import FlowStep
from idem.testing.bank import Log, Payment, Request

Promise: TypeAlias = Literal["P1", "P2", "P3", "P4", "P5"]


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A broken promise: what happened, to which intent, and what each side saw."""

    promise: Promise
    what: str
    intent: str | None
    key: str | None
    seen: str

    def __str__(self) -> str:
        return f"{self.promise} {self.what}: intent {self.intent or '-'}, key {self.key or '-'}: {self.seen}"


@dataclass(frozen=True, slots=True)
class ProofRules:
    """What the demo's contracts promise, in seconds, and the faults planned on purpose."""

    flight_limit: float
    pause_allowance: float
    horizon: float
    agree: int
    retention: float
    margin: float
    keyless: frozenset[str]
    """Providers that ignore keys."""
    rejected: frozenset[str] = frozenset()
    """Keys whose payment the bank rejects on purpose, so that an operator must decide."""
    partial: frozenset[str] = frozenset()
    """Keys of flows that cannot be undone, because the bank refuses that on purpose: an operator must decide."""
    flows: Mapping[str, Sequence[FlowStep]] = field(default_factory=dict)
    """The steps of each operation that has several."""
    clock_ahead: float = 0.0
    """How far the database's clock is ahead of ours."""


@dataclass(frozen=True)
class ProofCall:
    """Everything that the three sides know about one call of an intent: its only one, or a step of a flow.

    `step`: what the demo expects of the step; None for an operation of one call. In a flow, `sends` and `payments` are
    those with the step's name in their path, under any key. `attempt`: of its open row.
    """

    number: int
    step: FlowStep | None
    provider: str
    evidence: Sequence[EvidenceRow]
    requests: Sequence[FrozenRow]
    sends: Sequence[Request]
    payments: Sequence[Payment]
    end: StepRow | None = None
    attempt: int | None = None
    is_open: bool = False

    @property
    def charged(self) -> list[Payment]:
        """The payments of this call that moved money."""
        return [payment for payment in self.payments if payment.charged]

    @property
    def done_at(self) -> float | None:
        """When its first effect was final, by the bank's clock; None: it has none."""
        return min((payment.settles_at or payment.at for payment in self.charged), default=None)

    @property
    def refused_at(self) -> float | None:
        """When the bank refused it; None: it did not."""
        refused = [payment.settles_at or payment.at for payment in self.payments if not payment.charged]
        return min(refused, default=None)

    @property
    def where(self) -> tuple[str, ...]:
        """The step, its requests and its charges, for a finding; empty for an operation of one call."""
        if self.step is None:
            return ()
        return (f"step {self.step.name}: {len(self.sends)} requests, {len(self.charged)} charged",)


@dataclass(frozen=True)
class ProofCase:
    """Everything that the three sides know about one intent. Bank times are by the database's clock."""

    intent: IntentRow
    lines: Sequence[LogLine]
    evidence: Sequence[EvidenceRow]
    letters: Sequence[DeadLetterRow]
    calls: Sequence[ProofCall]
    """One, or one for each step of a flow, in the order of their numbers."""

    @property
    def is_flow(self) -> bool:
        return self.calls[0].step is not None

    @property
    def forward(self) -> list[ProofCall]:
        """The steps of a flow without those that undo others."""
        return [call for call in self.calls if call.step is not None and call.step.undoes is None]

    @property
    def sends(self) -> list[Request]:
        return [send for call in self.calls for send in call.sends]

    @property
    def charged(self) -> list[Payment]:
        """The payments of this intent that moved money."""
        return [payment for call in self.calls for payment in call.charged]

    @property
    def heard(self) -> str:
        """The client's last response, in short."""
        return f"clients: {self.lines[-1].said}" if self.lines else "clients: nothing"

    @property
    def stored(self) -> str:
        """The database's state, in short."""
        return f"database: {self.intent.state}, outbox row {self.intent.status or 'none'}"

    @property
    def made(self) -> str:
        """The bank's record, in short."""
        return f"bank: {len(self.sends)} requests, {len(self.charged)} charged"

    def finding(self, promise: Promise, what: str, *more: str, call: ProofCall | None = None) -> BrokenPromise:
        """A finding about this intent, or about one of its calls."""
        where = () if call is None else call.where
        seen = "; ".join((*where, *more, self.heard, self.stored, self.made))
        return BrokenPromise(promise, what, self.intent.id, self.intent.key, seen)


@dataclass(frozen=True)
class Records:
    """The three records. `bank` is its whole log."""

    clients: Sequence[LogLine]
    database: DatabaseRecord
    bank: Log
    rules: ProofRules

    @cached_property
    def cases(self) -> Sequence[ProofCase]:
        """One for each intent in the database."""
        lines = _grouped(self.clients, lambda line: line.key)
        evidence = _grouped(self.database.evidence, lambda row: row.intent)
        letters = _grouped(self.database.letters, lambda row: row.intent or "")
        return [
            ProofCase(
                intent=intent,
                lines=lines.get(intent.key, []),
                evidence=(own := in_order(evidence.get(intent.id, []))),
                letters=letters.get(intent.id, []),
                calls=self._calls(intent, own),
            )
            for intent in self.database.intents
        ]

    def _calls(self, intent: IntentRow, evidence: Sequence[EvidenceRow]) -> list[ProofCall]:
        requests = self._requests.get(intent.id, [])
        steps = self.rules.flows.get(intent.operation)
        if steps is None:
            sends, payments = self._by_provider_key
            return [
                ProofCall(
                    1, None, intent.provider or "", evidence, requests,
                    sends=[s for row in requests for s in sends.get((row.provider, row.provider_key), [])],
                    payments=[p for row in requests for p in payments.get((row.provider, row.provider_key), [])],
                    attempt=intent.attempt,
                )
            ]  # fmt: skip
        sends, payments = self._by_path
        ends = {row.step: row for row in self._ends.get(intent.id, [])}
        return [
            ProofCall(
                number, step, step.provider,
                [row for row in evidence if row.step == number],
                [row for row in requests if row.step == number],
                sends.get((intent.order, step.name), []),
                payments.get((intent.order, step.name), []),
                ends.get(number),
                intent.attempt if intent.step == number else None,
                intent.step == number,
            )
            for number, step in enumerate(steps, 1)
        ]  # fmt: skip

    @cached_property
    def strangers(self) -> Sequence[Payment]:
        """Payments that the bank made without a frozen request."""
        ours = {(row.provider, row.provider_key) for row in self.database.requests}
        return [payment for payment in self.bank.payments() if (payment.account, sent_as(payment)) not in ours]

    def at_bank(self, moment: float) -> float:
        """A time of the bank's log on the clock of the database."""
        return moment + self.rules.clock_ahead

    @cached_property
    def _requests(self) -> Mapping[str, list[FrozenRow]]:
        return _grouped(self.database.requests, lambda row: row.intent)

    @cached_property
    def _ends(self) -> Mapping[str, list[StepRow]]:
        return _grouped(self.database.steps, lambda row: row.intent)

    @cached_property
    def _by_path(self) -> tuple[Mapping[tuple[str, str], list[Request]], Mapping[tuple[str, str], list[Payment]]]:
        # The bank's own word on which order and step a request is of, whatever key it carries.
        paths = {request.id: _order_and_step(request.path) for request in self.bank.requests}
        return (
            _grouped(self.bank.sends(), lambda send: paths[send.id]),
            _grouped(self.bank.payments(), lambda payment: paths.get(payment.request, ("", ""))),
        )

    @cached_property
    def _by_provider_key(
        self,
    ) -> tuple[Mapping[tuple[str, str], list[Request]], Mapping[tuple[str, str], list[Payment]]]:
        # The bank has our key as the payment's reference for the old bank's account, as the idempotency key for the
        # other.
        sends = _grouped(self.bank.sends(), lambda send: (send.account or "", sent_as(send)))
        return sends, _grouped(self.bank.payments(), lambda payment: (payment.account, sent_as(payment)))


def in_order(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Evidence in the order of writing; rows of one millisecond or one statement in the order in which their states
    fit: the row of a flow's next step is written by the statement that ends the step before, and may come first.
    """
    left = sorted(rows, key=lambda row: row.id)
    ordered: list[EvidenceRow] = []
    state: str | None = None
    status: str | None = None
    while left:
        first = left[0]
        together = [row for row in left if row.id[:13] == first.id[:13] or row.at == first.at]
        fits = [row for row in together if follows(row, state, status)]
        chosen = (fits or together)[0]
        left.remove(chosen)
        ordered.append(chosen)
        if chosen.is_change or chosen.begins_step:
            state, status = chosen.to_state or state, chosen.to_status
    return ordered


FROM_CLAIM = frozenset({"pending", "claimed"})
"""A claim moves `pending` to `claimed` without a row of evidence: its end has one."""


def follows(row: EvidenceRow, state: str | None, status: str | None) -> bool:
    """Whether a row of evidence fits what was recorded before it."""
    if row.begins_step:
        # Written by the statement that ends the step before.
        return status is None and state is not None
    claimed = row.from_status == "claimed" and status in FROM_CLAIM
    return not row.is_change or (row.from_state == state and (row.from_status == status or claimed))


def _order_and_step(path: str) -> tuple[str, str]:
    query = parse_qs(urlsplit(path).query)
    return query.get("order", [""])[0], query.get("step", [""])[0]


def sent_as(made: Request | Payment) -> str:
    """The provider key of ours that a request carried, or that made a payment."""
    return made.key or made.reference or ""


T = TypeVar("T")
Key = TypeVar("Key")


def _grouped(rows: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    grouped: dict[Key, list[T]] = defaultdict(list)
    for row in rows:
        grouped[key(row)].append(row)
    return grouped
