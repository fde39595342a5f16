"""The three records of the proof, joined by intent, and the form of a broken promise."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from idem.cli.demo.client_log import LogLine
from idem.cli.demo.database_record import DatabaseRecord, DeadLetterRow, EvidenceRow, FrozenRow, IntentRow
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
    clock_ahead: float = 0.0
    """How far the database's clock is ahead of ours."""


@dataclass(frozen=True)
class ProofCase:
    """Everything that the three sides know about one intent. Bank times are by the database's clock."""

    intent: IntentRow
    lines: Sequence[LogLine]
    evidence: Sequence[EvidenceRow]
    requests: Sequence[FrozenRow]
    letters: Sequence[DeadLetterRow]
    sends: Sequence[Request]
    payments: Sequence[Payment]

    @property
    def charged(self) -> list[Payment]:
        """The payments of this intent that moved money."""
        return [payment for payment in self.payments if payment.charged]

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

    def finding(self, promise: Promise, what: str, *more: str) -> BrokenPromise:
        """A finding about this intent."""
        seen = "; ".join((*more, self.heard, self.stored, self.made))
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
        requests = _grouped(self.database.requests, lambda row: row.intent)
        letters = _grouped(self.database.letters, lambda row: row.intent or "")
        sends, payments = self._by_provider_key
        return [
            ProofCase(
                intent=intent,
                lines=lines.get(intent.key, []),
                evidence=in_order(evidence.get(intent.id, [])),
                requests=(own := requests.get(intent.id, [])),
                letters=letters.get(intent.id, []),
                sends=[s for row in own for s in sends.get((row.provider, row.provider_key), [])],
                payments=[p for row in own for p in payments.get((row.provider, row.provider_key), [])],
            )
            for intent in self.database.intents
        ]

    @cached_property
    def strangers(self) -> Sequence[Payment]:
        """Payments that the bank made without a frozen request."""
        ours = {(row.provider, row.provider_key) for row in self.database.requests}
        return [payment for payment in self.bank.payments() if (payment.account, _name(payment)) not in ours]

    def at_bank(self, moment: float) -> float:
        """A time of the bank's log on the clock of the database."""
        return moment + self.rules.clock_ahead

    @cached_property
    def _by_provider_key(
        self,
    ) -> tuple[Mapping[tuple[str, str], list[Request]], Mapping[tuple[str, str], list[Payment]]]:
        # The bank has our key as the payment's reference for the old bank's account, as the idempotency key for the
        # other.
        sends = _grouped(self.bank.sends(), lambda send: (send.account or "", _name(send)))
        return sends, _grouped(self.bank.payments(), lambda payment: (payment.account, _name(payment)))


def in_order(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Evidence in the order of writing; rows of the same millisecond in the order in which their states fit."""
    left = sorted(rows, key=lambda row: row.id)
    ordered: list[EvidenceRow] = []
    state: str | None = None
    while left:
        together = [row for row in left if row.id[:13] == left[0].id[:13]]
        fits = [row for row in together if not row.is_change or row.from_state == state]
        chosen = (fits or together)[0]
        left.remove(chosen)
        ordered.append(chosen)
        state = chosen.to_state if chosen.is_change else state
    return ordered


def _name(made: Request | Payment) -> str:
    return made.key or made.reference or ""


T = TypeVar("T")
Key = TypeVar("Key")


def _grouped(rows: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    grouped: dict[Key, list[T]] = defaultdict(list)
    for row in rows:
        grouped[key(row)].append(row)
    return grouped
