"""The bank: a fake payment provider on a real socket that fails on request."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from idem.outbox.values.background_loop import BackgroundLoop
from idem.testing.bank.control import stats
from idem.testing.bank.faults import BankFault
from idem.testing.bank.log import Log
from idem.testing.bank.payments import Payments
from idem.testing.bank.records import Changed, ClockShifted, Payment, Record, Remembered, Voided
from idem.testing.bank.script import Callback, Event, Matcher, ScriptStep
from idem.testing.bank.server import Server
from idem.testing.bank.service import BankService
from idem.testing.bank.settings import BankAccount, BankApi, BankSettings
from idem.testing.bank.state import BankState
from idem.testing.bank.stripe.objects import StripeObjects
from idem.testing.bank.stripe.service import StripeService
from idem.testing.bank.webhooks import Webhooks


class Bank:
    """One bank, opened once: `async with Bank(settings) as bank`, or `with Bank(settings).in_thread() as bank`.

    `script`, `when`, `shift_clock`, `log` and `stats` may be used from any thread.
    """

    def __init__(self, settings: BankSettings | None = None) -> None:
        self._state = BankState(settings or BankSettings())
        self._payments = Payments(self._state)
        self._stripe = StripeService(self._state)
        self._webhooks = Webhooks(self._state, self._stripe.body)
        self._service = BankService(self._state, self._webhooks, self._payments, self._stripe)
        self._server = Server(self._service, idle_seconds=self.settings.idle_seconds, max_body=self.settings.max_body)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port: int | None = None
        for rule in self.settings.script:
            self._state.script.add_json(rule, commands=True)

    @property
    def settings(self) -> BankSettings:
        """The settings, with all added accounts."""
        return self._state.settings

    @property
    def url(self) -> str:
        """The base URL, without a slash at the end."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port that the bank listens on; it stays known after the bank has closed.

        Raises:
            RuntimeError: the bank has not opened yet.
        """
        if self._port is None:
            raise RuntimeError("the bank is not open yet")
        return self._port

    @property
    def log(self) -> Log:
        """Everything that has happened until now, including earlier runs on the same log."""
        return Log(list(self._state.ledger.records))

    def stats(self) -> dict[str, Any]:
        """The numbers of `GET /_bank/stats`."""
        return stats(self._state)

    def script(self, match: Matcher, steps: Iterable[str | BankFault | ScriptStep | dict[str, Any] | None]) -> None:
        """Play these steps, one for each of the next requests that match. A step is a fault's name (`none`: no fault),
        a `BankFault`, a `ScriptStep` or its members. `match`: a `RequestMatch`, its members, a function of the request,
        None for every POST.

        Raises:
            SettingsError: the match or a step is invalid.
        """
        self._state.script.add(match, steps)

    def add_account(self, account: BankAccount) -> None:
        """Serve one more account, and send its events if it has a `webhook_url`.

        Raises:
            SettingsError: another account has its name or token.
        """
        self._state.add_account(account)

    def send_webhooks_to(self, url: str, *, account: str = "main") -> None:
        """Send this account's events to this URL from now on, also those that an earlier receiver did not accept.

        Raises:
            LookupError: there is no such account.
        """
        self._in_loop(lambda: self._webhooks.send_to(account, url))

    def stripe_objects(self, kind: str, *, account: str | None = None) -> list[dict[str, Any]]:
        """The current objects of one kind (e.g. `payment_intent`) of Stripe-like accounts, oldest first."""
        objects, now = StripeObjects(self.log.changes), self._state.clock.now()
        return [each for name in self._names(account) for each in [*objects.newest(name, kind, now, now)][::-1]]

    def stripe_events(self, *, account: str | None = None) -> list[Changed]:
        """The changes of Stripe-like accounts until now that have an event, in order."""
        objects, now = StripeObjects(self.log.changes), self._state.clock.now()
        return [each for name in self._names(account) for each in objects.events(name, 0, now)[::-1]]

    def forget_script(self) -> None:
        """Remove every step that has not been played yet."""
        self._state.script.clear()

    def when(self, event: Event, match: Matcher, callback: Callback, *, times: int | None = None) -> None:
        """Call back at each matching `received`, `acted` or `answered` request; the request waits for it.

        `async with`: on the loop; a callback must not block there, but may be a coroutine function. `in_thread`: in a
        worker thread. The bank raises the exceptions of callbacks when it closes.

        Raises:
            SettingsError: the event or the match is invalid.
        """
        self._state.hooks.add(event, match, callback, times)

    def shift_clock(self, seconds: float) -> None:
        """Advance the bank's clock, for this run and for later runs on the same log: retention, lag and pending end
        sooner. Stalls and pauses stay real."""
        self._in_loop(lambda: self._state.shift_clock(seconds))

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run on a loop of its own in a thread, for tests that are not asynchronous.

        Raises:
            BankError, OSError: the log or the port cannot be used.
            ExceptionGroup: at the end, the exceptions of callbacks.
        """
        self._state.hooks.in_threads = True
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
        """Read the log and open the port.

        Raises:
            LogInUse, LogCorrupt, OSError: the log or the port cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._state.ledger.open()
        for record in self._state.ledger.records:
            self._recall(record)
        self._service.recall()
        try:
            await self._server.start(self.settings.host, self.settings.port)
        except OSError:
            await self._state.ledger.close()
            raise
        self._port = self._server.port
        self._webhooks.start()

    async def stop(self) -> None:
        """Answer the running requests, close the connections and the log."""
        await self._server.stop()
        await self._webhooks.stop()
        await self._state.ledger.close()
        self._loop = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.stop()
        self._raise_failures(hidden=kind is not None)

    def _recall(self, record: Record) -> None:
        """Restore one line of an earlier run."""
        match record:
            case Payment(account=name) if (known := self._state.account(name)) and known.api is BankApi.STRIPE:
                self._stripe.remember(record)
            case Payment() | Voided():
                self._payments.remember(record)
            case Remembered():
                self._state.cache.remember(record)
            case Changed():
                self._state.register.add(record)
            case ClockShifted():
                self._state.clock.shifted = record.shifted

    def _names(self, account: str | None) -> list[str]:
        return [each.name for each in self.settings.accounts if account in (None, each.name)]

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

    def _raise_failures(self, *, hidden: bool) -> None:
        failures = [*self._state.hooks.raised, *self._server.failures]
        if failures and not hidden:
            raise ExceptionGroup("the bank's callbacks or requests failed", failures)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
