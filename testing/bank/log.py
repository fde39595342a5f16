"""Reads the log, the record against which proofs check."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from idem.testing.bank.ledger import read_records
from idem.testing.bank.records import NOT_CHARGED, Changed, EndedRequest, Payment, Received, Record, Voided, WebhookSent
from idem.testing.bank.stripe.objects import StripeObjects


@dataclass(frozen=True)
class Request(Received):
    """One request with its end. `answered_at` None: the bank died, or still holds the answer back; `status` None: no
    answer.
    """

    effect: str | None = None
    payment: str | None = None
    status: int | None = None
    answered_at: float | None = None


@dataclass(frozen=True)
class Resend:
    """A send under a key that was sent before. `age`: seconds after the first of these sends."""

    later: Request
    earlier: tuple[Request, ...]
    age: float

    @property
    def after_an_effect(self) -> bool:
        """Whether an earlier send had acted."""
        return any(each.effect == "made" for each in self.earlier)


class Log:
    """A view of the log at one moment; it does not grow."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: Sequence[Record] = tuple(records)
        answers = {r.request: r for r in self.records if isinstance(r, EndedRequest)}
        made = {r.request: r for r in self.records if isinstance(r, Payment)}
        self.requests: Sequence[Request] = tuple(
            _join(r, answers.get(r.id), made.get(r.id)) for r in self.records if isinstance(r, Received)
        )
        self.webhooks: Sequence[WebhookSent] = tuple(r for r in self.records if isinstance(r, WebhookSent))
        self.changes: Sequence[Changed] = tuple(r for r in self.records if isinstance(r, Changed))

    def payments(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Payment]:
        """All payments, including declined ones, oldest first."""
        return [r for r in self.records if isinstance(r, Payment) and _is_of(r, account, key, reference)]

    def effects(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Payment]:
        """The payments that moved or will move money: one intent must never have two of them.

        Voided payments do not count; an object of a Stripe-like account counts by its final state.
        """
        voided = {(r.account, r.payment) for r in self.records if isinstance(r, Voided)}
        register = StripeObjects(self.changes)

        def charged(payment: Payment) -> bool:
            if (payment.account, payment.id) in voided:
                return False
            end = register.get(payment.account, payment.id)
            return payment.charged if end is None else end.get("status") not in NOT_CHARGED

        return [p for p in self.payments(account=account, key=key, reference=reference) if charged(p)]

    def sends(
        self, *, account: str | None = None, key: str | None = None, reference: str | None = None
    ) -> list[Request]:
        """The complete POSTs that asked for an effect, oldest first: first sends and replays."""
        posts = [r for r in self.requests if r.method == "POST" and r.asks == "effect" and r.complete]
        return [r for r in posts if _is_of(r, account, key, reference)]

    def sends_by_key(self) -> dict[str, list[Request]]:
        """The sends by key."""
        grouped: dict[str, list[Request]] = defaultdict(list)
        for request in self.sends():
            if request.key is not None:
                grouped[request.key].append(request)
        return dict(grouped)

    def resends(self, *, account: str | None = None) -> list[Resend]:
        """Every send under a key that this account has sent before, in order: a contract must allow each of them."""
        seen: dict[tuple[str | None, str], list[Request]] = defaultdict(list)
        found = []
        for send in self.sends(account=account):
            if send.key is None:
                continue
            earlier = seen[send.account, send.key]
            if earlier:
                found.append(Resend(send, tuple(earlier), send.at - earlier[0].at))
            earlier.append(send)
        return found

    def cancels(self, *, account: str | None = None, key: str | None = None) -> list[Request]:
        """The requests that cancelled a payment by its key, oldest first."""
        return [r for r in self.requests if r.asks == "cancel" and r.complete and _is_of(r, account, key, None)]

    def duplicates(self) -> dict[str, list[Payment]]:
        """The references that were charged more than once; empty if all is well."""
        grouped: dict[str, list[Payment]] = defaultdict(list)
        for payment in self.effects():
            if payment.reference is not None:
                grouped[payment.reference].append(payment)
        return {reference: payments for reference, payments in grouped.items() if len(payments) > 1}

    def faults(self) -> Counter[str]:
        """How often each fault was applied, by its name without seconds."""
        return Counter(r.fault.partition(":")[0] for r in self.requests if r.fault is not None)


def _is_of(record: Payment | Request, account: str | None, key: str | None, reference: str | None) -> bool:
    """Whether it has these values; None: any."""
    wanted = ((account, record.account), (key, record.key), (reference, record.reference))
    return all(one is None or one == found for one, found in wanted)


def read_log(path: Path) -> Log:
    """Read a bank's log, also while the bank writes it: an incomplete last line is left out.

    Raises:
        OSError: the file cannot be read.
        LogCorrupt: a line in it cannot be read.
    """
    content = path.read_bytes()
    return Log(read_records(content[: content.rfind(b"\n") + 1]))


def _join(request: Received, answer: EndedRequest | None, made: Payment | None) -> Request:
    # The bank may die between the effect and the line about its answer; the effect counts.
    effect = answer.effect if answer else ("made" if made else None)
    return Request(
        **vars(request),
        effect=effect,
        payment=answer.payment if answer else (made.id if made else None),
        status=answer.status if answer else None,
        answered_at=answer.at if answer else None,
    )
