"""The payments in memory: what the bank shows of them, and from when on."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from idem.testing.bank.clock import Clock
from idem.testing.bank.records import Payment, Voided
from idem.testing.bank.settings import BankAccount, SecondRequest


class Book:
    """All payments of all accounts. A payment is found by its id at once, by anything else after the account's lag."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: dict[tuple[str, str], Payment] = {}
        self._by_key: dict[tuple[str, str], list[Payment]] = defaultdict(list)
        self._by_reference: dict[tuple[str, str], list[Payment]] = defaultdict(list)
        self._by_account: dict[str, list[Payment]] = defaultdict(list)
        self._voided: dict[tuple[str, str], Voided] = {}

    def add(self, payment: Payment) -> None:
        self._by_id[payment.account, payment.id] = payment
        self._by_account[payment.account].append(payment)
        if payment.key is not None:
            self._by_key[payment.account, payment.key].append(payment)
        if payment.reference is not None:
            self._by_reference[payment.account, payment.reference].append(payment)

    def void(self, voided: Voided) -> None:
        """Store that a payment was voided, if the line names one."""
        if voided.payment is not None:
            self._voided[voided.account, voided.payment] = voided

    def voided(self, payment: Payment) -> Voided | None:
        """The line that voided the payment; None if there is none."""
        return self._voided.get((payment.account, payment.id))

    def get(self, account: BankAccount, payment_id: str) -> Payment | None:
        """The payment, if it is visible by now."""
        payment = self._by_id.get((account.name, payment_id))
        return payment if payment is not None and payment.at <= self._clock.now() else None

    def under(self, account: BankAccount, key: str) -> list[Payment]:
        """All payments made under the key, including those that appear later by themselves."""
        return list(self._by_key.get((account.name, key), ()))

    def find(self, account: BankAccount, *, key: str | None = None, reference: str | None = None) -> list[Payment]:
        """The payments that look-ups show by now, oldest first; without key and reference: all."""
        found: Iterable[Payment]
        if key is not None:
            found = self._by_key.get((account.name, key), ())
        elif reference is not None:
            found = self._by_reference.get((account.name, reference), ())
        else:
            found = self._by_account.get(account.name, ())
        horizon = self._clock.now() - account.lookup_lag
        return [p for p in found if p.at <= horizon and (reference is None or p.reference == reference)]

    def carrying(self, account: BankAccount, words: Sequence[str]) -> list[Payment]:
        """The payments that have one of these words as id or key, or anywhere in their order; oldest first."""
        now = self._clock.now()
        horizon = now - account.lookup_lag
        asked = set(words)
        return [
            payment
            for payment in self._by_account.get(account.name, ())
            if (payment.id in asked and payment.at <= now)
            or (payment.at <= horizon and (payment.key in asked or not asked.isdisjoint(_texts(payment.details))))
        ]

    def shown(self, account: BankAccount, payment: Payment, status: str | None = None) -> dict[str, Any]:
        """The payment as the API shows it, by default with its current status."""
        if status is None:
            status = "canceled" if self.voided(payment) is not None else payment.status_at(self._clock.now())
        shown = {
            "id": payment.id,
            "object": "payment",
            "status": status,
            "amount": payment.amount,
            "currency": payment.currency,
            "reference": payment.reference,
            "created": payment.at,
        }
        if shown["status"] == "requires_action":
            shown["next_action"] = {"type": "redirect", "url": f"https://acs.bank.example/challenges/{payment.id}"}
        # A bank that ignores keys does not store them either.
        if account.replay is not SecondRequest.NONE:
            shown["idempotency_key"] = payment.key
        return {**shown, **{name: value for name, value in payment.details.items() if name not in shown}}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
