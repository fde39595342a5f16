"""What all parts of one bank share: its settings, its clock, its log, and the state that is read from the log."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from idem.testing.bank.answers import BankAnswer
from idem.testing.bank.book import Book
from idem.testing.bank.cache import KeyCache
from idem.testing.bank.clock import Clock
from idem.testing.bank.faults import NO_FAULT, Acts, BankFault, FaultPlan
from idem.testing.bank.hooks import Hooks
from idem.testing.bank.ledger import Ledger
from idem.testing.bank.order import BankOrder
from idem.testing.bank.records import Changed, ClockShifted, Payment, Remembered, Voided
from idem.testing.bank.script import Script
from idem.testing.bank.settings import BankAccount, BankSettings, SecondRequest
from idem.testing.bank.stripe.objects import StripeObjects


class BankState:
    """One for each bank. `settings` change when an account is added or gets another receiver of its events."""

    def __init__(self, settings: BankSettings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.ledger = Ledger(settings.log, durable=settings.durable)
        self.book = Book(self.clock)
        self.cache = KeyCache(self.clock)
        self.register = StripeObjects()
        self.script = Script()
        self.hooks = Hooks()

    def account(self, name: str) -> BankAccount | None:
        """The account of this name."""
        return next((each for each in self.settings.accounts if each.name == name), None)

    def add_account(self, account: BankAccount) -> None:
        """Serve one more account.

        Raises:
            SettingsError: another account has its name or token.
        """
        self.settings = replace(self.settings, accounts=(*self.settings.accounts, account))

    def shift_clock(self, seconds: float) -> None:
        """Advance the clock, and record it in the log."""
        self.clock.shift(seconds)
        self.ledger.write(ClockShifted(self.clock.now(), self.clock.shifted))

    async def stall(self, fault: BankFault | None) -> None:
        """Wait before acting, if the fault says so."""
        if fault is not None and fault.plan.acts is Acts.LATE:
            await asyncio.sleep(self.settings.stall_seconds if fault.time is None else fault.time)


@dataclass(frozen=True)
class BankExecution:
    """One request to execute. Await `acted` once the effect is in the log and before the answer, with the payment and
    the other records of the effect."""

    order: BankOrder
    account: BankAccount
    number: int
    fault: BankFault | None
    acted: Callable[[Payment | None, Sequence[Changed | Voided]], Awaitable[None]]

    @property
    def plan(self) -> FaultPlan:
        """The plan of its fault."""
        return NO_FAULT if self.fault is None else self.fault.plan

    @property
    def delay(self) -> float:
        """Seconds after which the effect appears by itself; 0: at once."""
        return (self.fault.time or 0.0) if self.fault is not None and self.plan.acts is Acts.ROLLS_FORWARD else 0.0

    @property
    def keeps(self) -> bool:
        """Whether the key keeps the answer."""
        return self.order.key is not None and self.account.replay is not SecondRequest.NONE

    def remembered(self, now: float, answer: BankAnswer, made: str | None, appears: float) -> Remembered:
        """The record of the answer that the key gets again."""
        order = self.order
        return Remembered(
            self.number, now, self.account.name, order.key or "", order.fingerprint, answer.status,
            answer.body.decode(), made, appears,
        )  # fmt: skip
