"""What all parts of one bank share: its settings, its clock, its log, and what is read from the log."""

import asyncio
from dataclasses import replace

from idem.testing.bank.answers import BankAnswer
from idem.testing.bank.book import Book
from idem.testing.bank.cache import KeyCache
from idem.testing.bank.clock import Clock
from idem.testing.bank.faults import Acts, BankFault
from idem.testing.bank.hooks import Hooks
from idem.testing.bank.ledger import Ledger
from idem.testing.bank.order import BankOrder
from idem.testing.bank.records import ClockShifted, Remembered
from idem.testing.bank.script import Script
from idem.testing.bank.settings import BankAccount, BankSettings
from idem.testing.bank.stripe.register import Register


class BankState:
    """One for each bank. `settings` change when an account is added or gets another receiver of its events."""

    def __init__(self, settings: BankSettings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.ledger = Ledger(settings.log, durable=settings.durable)
        self.book = Book(self.clock)
        self.cache = KeyCache(self.clock)
        self.register = Register()
        self.script = Script()
        self.hooks = Hooks()

    def account(self, name: str) -> BankAccount | None:
        """The account of this name."""
        return next((each for each in self.settings.accounts if each.name == name), None)

    def add_account(self, account: BankAccount) -> None:
        """Serve one more account.

        Raises:
            SettingsError: its name or token is taken.
        """
        self.settings = replace(self.settings, accounts=(*self.settings.accounts, account))

    def shift_clock(self, seconds: float) -> None:
        """Put the clock forward, and note it in the log."""
        self.clock.shift(seconds)
        self.ledger.write(ClockShifted(self.clock.now(), self.clock.shifted))

    async def stall(self, fault: BankFault | None) -> None:
        """Wait before acting, where the fault says so."""
        if fault is not None and fault.plan.acts is Acts.LATE:
            await asyncio.sleep(self.settings.stall_seconds if fault.time is None else fault.time)

    def remembered(
        self, order: BankOrder, number: int, answer: BankAnswer, made: str | None, appears: float
    ) -> Remembered:
        """The answer that the key of this order gets again."""
        assert order.key is not None and order.account is not None
        return Remembered(
            number, self.clock.now(), order.account.name, order.key, order.fingerprint, answer.status,
            answer.body.decode(), made, appears,
        )  # fmt: skip
