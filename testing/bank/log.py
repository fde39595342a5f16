"""Reading the log: what proofs ask the bank's truth."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from idem.testing.bank.ledger import read_records
from idem.testing.bank.records import Answered, Payment, Received, Record, WebhookSent


@dataclass(frozen=True)
class Request:
    """One request with its end. `answered_at` None: the bank died, or still sits on it; `status` None: no answer."""

    id: int
    at: float
    account: str | None
    method: str
    path: str
    key: str | None
    reference: str | None
    body_sha256: str
    nth: int
    fault: str | None
    complete: bool
    effect: str | None
    payment: str | None
    status: int | None
    answered_at: float | None


class Log:
    """A view of the log at one moment. It does not grow; ask for another."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: Sequence[Record] = tuple(records)
        answers = {r.request: r for r in self.records if isinstance(r, Answered)}
        made = {r.request: r for r in self.records if isinstance(r, Payment)}
        self.requests: Sequence[Request] = tuple(
            _join(r, answers.get(r.id), made.get(r.id)) for r in self.records if isinstance(r, Received)
        )
        self.webhooks: Sequence[WebhookSent] = tuple(r for r in self.records if isinstance(r, WebhookSent))

    def payments(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Payment]:
        """All payments, declined ones too, oldest first."""
        return [
            r
            for r in self.records
            if isinstance(r, Payment)
            and (account is None or r.account == account)
            and (key is None or r.key == key)
            and (reference is None or r.reference == reference)
        ]

    def effects(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Payment]:
        """The payments that moved money, or will: what must never be two for one intent."""
        return [p for p in self.payments(account=account, key=key, reference=reference) if p.charged]

    def sends(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Request]:
        """The POSTs that asked for a payment and came in whole, oldest first: first sends and replays alike."""
        return [
            r
            for r in self.requests
            if r.method == "POST"
            and r.path == "/payments"
            and r.complete
            and (account is None or r.account == account)
            and (key is None or r.key == key)
            and (reference is None or r.reference == reference)
        ]

    def sends_by_key(self) -> dict[str, list[Request]]:
        """The sends of every key."""
        grouped: dict[str, list[Request]] = defaultdict(list)
        for request in self.sends():
            if request.key is not None:
                grouped[request.key].append(request)
        return dict(grouped)

    def duplicates(self) -> dict[str, list[Payment]]:
        """The references that were charged more than once: empty, if all is well."""
        grouped: dict[str, list[Payment]] = defaultdict(list)
        for payment in self.effects():
            if payment.reference is not None:
                grouped[payment.reference].append(payment)
        return {reference: payments for reference, payments in grouped.items() if len(payments) > 1}

    def faults(self) -> Counter[str]:
        """How often each fault was applied, by name without its time."""
        return Counter(r.fault.partition(":")[0] for r in self.requests if r.fault is not None)


def read_log(path: Path) -> Log:
    """Read a bank's log, also while the bank is writing it: a last line without its end is left out.

    Raises:
        OSError: the file cannot be read.
        LogCorrupt: a line in it cannot be read.
    """
    content = path.read_bytes()
    return Log(read_records(content[: content.rfind(b"\n") + 1]))


def _join(request: Received, answer: Answered | None, made: Payment | None) -> Request:
    # The bank may die between the effect and the line that tells of its answer: the effect stands.
    effect = answer.effect if answer else ("made" if made else None)
    return Request(
        **vars(request),
        effect=effect,
        payment=answer.payment if answer else (made.id if made else None),
        status=answer.status if answer else None,
        answered_at=answer.at if answer else None,
    )
