"""The bank: a fake payment provider on a real socket that fails on request."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from idem.outbox.values.background_loop import BackgroundLoop
from idem.testing.bank.book import Book
from idem.testing.bank.cache import KeyCache
from idem.testing.bank.clock import Clock
from idem.testing.bank.control import Control, stats
from idem.testing.bank.faults import BankFault
from idem.testing.bank.hooks import Hooks
from idem.testing.bank.ledger import Ledger
from idem.testing.bank.log import Log
from idem.testing.bank.payments import Payments
from idem.testing.bank.records import Changed, ClockShifted, Payment, Record, Remembered, Voided
from idem.testing.bank.script import Callback, Event, Matcher, Script, ScriptStep
from idem.testing.bank.server import Server
from idem.testing.bank.settings import BankAccount, BankApi, BankSettings
from idem.testing.bank.stripe.counter import StripeCounter
from idem.testing.bank.stripe.register import Register
from idem.testing.bank.stripe.views import stripe_events, stripe_objects
from idem.testing.bank.teller import BankTeller
from idem.testing.bank.webhooks import Webhooks


class Bank:
    """One bank, opened once: `async with Bank(settings) as bank`, or `with Bank(settings).in_thread() as bank`.

    `script`, `when`, `shift_clock`, `log` and `stats` may be used from any thread.
    """

    def __init__(self, settings: BankSettings | None = None) -> None:
        self.settings = settings or BankSettings()
        self._clock = Clock()
        self._ledger = Ledger(self.settings.log, durable=self.settings.durable)
        self._book = Book(self._clock)
        self._cache = KeyCache(self._clock)
        self._script = Script()
        self._hooks = Hooks()
        self._register = Register()
        self._payments = Payments(self.settings, self._clock, self._ledger, self._book, self._cache)
        self._stripe = StripeCounter(self.settings, self._clock, self._ledger, self._register, self._cache)
        self._webhooks = Webhooks(self.settings, self._clock, self._ledger, self._book, self._stripe.body)
        control = Control(self._ledger, self._script, self._shift)
        self._teller = BankTeller(
            self.settings,
            self._clock,
            self._ledger,
            self._payments,
            self._stripe,
            self._webhooks,
            self._script,
            self._hooks,
            control,
        )
        self._server = Server(self._teller, idle_seconds=self.settings.idle_seconds, max_body=self.settings.max_body)
        self._stripe_accounts = {each.name for each in self.settings.accounts if each.api is BankApi.STRIPE}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port: int | None = None
        for rule in self.settings.script:
            self._script.add_json(rule, commands=True)

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port that the bank listens on; still known after it has closed.

        Raises:
            RuntimeError: it has not opened yet.
        """
        if self._port is None:
            raise RuntimeError("the bank is not open yet")
        return self._port

    @property
    def log(self) -> Log:
        """All that has happened until now, earlier runs on the same log included."""
        return Log(list(self._ledger.records))

    def stats(self) -> dict[str, Any]:
        """The numbers of `GET /_bank/stats`."""
        return {**stats(self.log), "script_left": self._script.left()}

    def script(self, match: Matcher, steps: Iterable[str | BankFault | ScriptStep | dict[str, Any] | None]) -> None:
        """Let the next requests that match meet these steps, one each: a fault's name (`none`: no fault), a
        `BankFault`, a `ScriptStep` or its members. `match`: a `RequestMatch`, its members, a function of the
        request, None for every POST.

        Raises:
            SettingsError: the match or a step is not understood.
        """
        self._script.add(match, steps)

    def add_account(self, account: BankAccount) -> None:
        """Serve one more account, and send its events if it has a `webhook_url`.

        Raises:
            SettingsError: its name or token is taken.
        """
        self._teller.add_account(account)

    def send_webhooks_to(self, url: str, *, account: str = "main") -> None:
        """From now on send this account's events there, those that an earlier receiver did not take too.

        Raises:
            LookupError: there is no such account.
        """
        self._in_loop(lambda: self._webhooks.send_to(account, url))

    def stripe_objects(self, kind: str, *, account: str | None = None) -> list[dict[str, Any]]:
        """The objects of a kind (`payment_intent`) of Stripe-like accounts as they are now, oldest first."""
        return stripe_objects(self.log, kind, account=account, at=self._clock.now())

    def stripe_events(self, *, account: str | None = None) -> list[Changed]:
        """The changes of Stripe-like accounts that have an event, until now, in their order."""
        return stripe_events(self.log, account=account, at=self._clock.now())

    def forget_script(self) -> None:
        """Drop every step that no request has met yet."""
        self._script.clear()

    def when(self, event: Event, match: Matcher, callback: Callback, *, times: int | None = None) -> None:
        """Call back at each `received`, `acted` or `answered` request that matches; the request waits for it.

        `async with`: on the loop; a callback must not block there, but may be a coroutine function. `in_thread`: in a
        worker thread. What it raises is raised when the bank closes.

        Raises:
            SettingsError: the event or the match is not understood.
        """
        self._hooks.add(event, match, callback, times)

    def shift_clock(self, seconds: float) -> None:
        """Put the bank's clock forward, for this run and those that follow on the log: ends of retention, of lag and
        of pending come nearer. Stalls and pauses stay real."""
        self._in_loop(lambda: self._shift(seconds))

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run on a loop of its own in a thread: for tests that are not asynchronous.

        Raises:
            BankError, OSError: the log or the port cannot be had.
            ExceptionGroup: at the end, what callbacks raised.
        """
        self._hooks.in_threads = True
        with BackgroundLoop("bank") as background:
            background.call(self.start())
            failed = True
            try:
                yield self
                failed = False
            finally:
                background.call(self.stop())
                self._raise_failures(hidden=failed)

    async def start(self) -> None:
        """Read the log, open the port.

        Raises:
            LogInUse, LogCorrupt, OSError: the log or the port cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self._ledger.open()
        for record in self._ledger.records:
            self._recall(record)
        self._teller.recall()
        try:
            await self._server.start(self.settings.host, self.settings.port)
        except OSError:
            await self._ledger.close()
            raise
        self._port = self._server.port
        self._webhooks.start()

    async def stop(self) -> None:
        """Answer what is being worked on, hang up, close the log."""
        await self._server.stop()
        await self._webhooks.stop()
        await self._ledger.close()
        self._loop = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self._raise_failures(hidden=error is not None)

    def _recall(self, record: Record) -> None:
        """A line of an earlier run."""
        match record:
            case Payment(account=name) if name in self._stripe_accounts:
                self._stripe.remember(record)
            case Payment() | Voided():
                self._payments.remember(record)
            case Remembered():
                self._cache.remember(record)
            case Changed():
                self._register.add(record)
            case ClockShifted():
                self._clock.shifted = record.shifted
            case _:
                pass

    def _in_loop(self, work: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            raise RuntimeError("the bank is not open")
        if _running() is loop:
            work()
            return

        async def done() -> None:
            work()

        asyncio.run_coroutine_threadsafe(done(), loop).result(5)

    def _shift(self, seconds: float) -> None:
        self._clock.shift(seconds)
        self._ledger.write(ClockShifted(self._clock.now(), self._clock.shifted))

    def _raise_failures(self, *, hidden: bool) -> None:
        failures = [*self._hooks.raised, *self._server.failures]
        if failures and not hidden:
            raise ExceptionGroup("the bank's callbacks or requests failed", failures)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
