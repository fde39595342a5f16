"""The lab runs idem's daemons in a test of an application, one step at a time.

Every step is real. The workers, the sweeper, the reconciler and the handlers are those of production; they speak HTTP
to the bank and SQL to the test's database. Only time is simulated: `advance` moves the rows instead of the clock.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from idem.outbox.accept import sql_operations
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.provider import Provider
from idem.outbox.handlers.handler import Handler
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.send import SendProvider
from idem.outbox.values.background_loop import BackgroundLoop
from idem.outbox.worker.worker import WorkerPass
from idem.reconciler.daemon import ReconcilerPass
from idem.sweeper.daemon import SweepResult
from idem.testing import checked_ledger, stepping
from idem.testing.checked_ledger import HistoryRow, Intent, RecordedDeadLetter, RecordedStep
from idem.testing.daemons import Daemons
from idem.testing.likeness import account_like
from idem.testing.scripted import ScriptedBank

ROUNDS: Final = 200
STILL: Final = 3
"""Rounds without progress, although something is due, after which `settle` gives up."""
LONGEST: Final = timedelta(days=45)
"""How much time `settle` lets pass at most: longer than any schedule of a sensible contract."""


class Application(Protocol):
    """What the lab needs of an `Idem`."""

    @property
    def providers(self) -> Mapping[str, Provider]: ...

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    def catalogue(self) -> Catalogue: ...

    def pointed_at(self, provider: str, origin: str) -> AbstractContextManager[None]: ...


class NotSettled(AssertionError):
    """The work has not finished; the text lists what is left."""


class Lab:
    """The daemons of an application's `Idem` on this database, with the bank for all its providers.

    It works in synchronous and asynchronous tests; each step returns when it is over.
    """

    def __init__(self, application: Application, url: str, bank: ScriptedBank) -> None:
        self.url = url
        self.bank = bank
        self._stack = ExitStack()
        try:
            self._handlers = application.handlers
            for name, provider in application.providers.items():
                # A provider with the user's own function keeps calling that function.
                if name != LOCAL and not isinstance(provider, SendProvider):
                    self._stack.enter_context(application.pointed_at(name, bank.url))
            self._catalogue = self._at_the_bank(application.catalogue())
            self._loop = BackgroundLoop("idem-lab")
            self._stack.callback(self._loop.close)
            self._database = Database(url, name="idem-lab", size=8, timeouts=Timeouts(lock=10, connect=10))
            self._loop.call(self._database.open())
            self._stack.callback(lambda: self._loop.call(self._database.close()))
            self._daemons = Daemons(self._database, self._catalogue, self._handlers)
            self._install()
            self.run_handlers()
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Restore the application."""
        self._stack.close()

    # Steps.

    def work(self) -> WorkerPass:
        """One pass of a worker: render, claim what is due, make the calls, settle; then the handlers."""
        done = self._loop.call(self._daemons.work())
        self.run_handlers()
        return done

    def sweep(self) -> SweepResult:
        """One pass of the sweeper: leases, queued rows, keys, history."""
        return self._loop.call(self._daemons.sweep())

    def reconcile(self, *, now: bool = False) -> ReconcilerPass:
        """One pass of the reconciler over what is due (`now`: over everything unknown or awaiting); then handlers."""
        done = self._loop.call(self._daemons.reconcile(now=now))
        self.run_handlers()
        return done

    def run_handlers(self) -> int:
        """Run the `on_settled` handlers that are due; returns how many events they handled."""
        return self._loop.call(self._daemons.run_handlers()) if self._handlers else 0

    def advance(
        self, time: timedelta | None = None, /, *, seconds: float = 0, minutes: float = 0, hours: float = 0,
        days: float = 0,
    ) -> None:  # fmt: skip
        """Let time pass for every row of idem, and for the bank. Nothing else happens; the next steps act on it."""
        passed = (time or timedelta()) + timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        self._loop.call(self._advanced(passed.total_seconds()))
        self.bank.shift_clock(passed.total_seconds())

    def settle(self, *, within: timedelta = LONGEST) -> None:
        """Run all daemons in turn, and let the time pass that they wait for, until nothing changes any more.

        Work that an operator must decide counts as finished: see `dead_letters`. Raises NotSettled, which says what is
        left.
        """
        passed, still, before = 0.0, 0, -1
        for _ in range(ROUNDS):
            self.work()
            self.sweep()
            self.reconcile()
            left, moves = checked_ledger.left(self.url, list(self._handlers))
            if not left:
                return
            still = still + 1 if moves == before else 0
            before = moves
            due = min((each.due for each in left if each.due is not None), default=0.0)
            if due > 0:
                passed, still = passed + due + 0.1, 0
                if passed > within.total_seconds():
                    break
                self.advance(seconds=due + 0.1)
            elif still >= STILL:
                break
        raise NotSettled("the work does not finish:\n" + "\n".join(f"  {each}" for each in left))

    def kill_worker_during_call(self) -> None:
        """A worker claims the next due row, calls the provider, and is killed before it reads the answer.

        The row stays claimed, and its lease has expired. Raises LookupError if no row is due.
        """
        self._killed(after_the_call=True)

    def kill_worker_before_call(self) -> None:
        """The same, but the worker is killed before the call."""
        self._killed(after_the_call=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all daemons at once, as in production: for endpoints that wait for the answer."""
        stop: list[asyncio.Event] = []

        async def begin() -> asyncio.Task[None]:
            stop.append(asyncio.Event())
            return asyncio.create_task(self._daemons.run(stop[0]))

        task = self._loop.call(begin())
        try:
            yield
        finally:

            async def end() -> None:
                stop[0].set()
                await task

            self._loop.call(end())

    # State.

    @property
    def intents(self) -> list[Intent]:
        """All intents, oldest first."""
        return checked_ledger.intents(self.url)

    def intent(self, which: str | UUID, *, operation: str | None = None, tenant: str | None = None) -> Intent:
        """The intent with this idempotency key or id. Raises LookupError if there is none, or more than one."""
        found = [
            each
            for each in self.intents
            if which in (each.key, each.id, str(each.id))
            and operation in (None, each.operation)
            and tenant in (None, each.tenant)
        ]
        if len(found) != 1:
            known = ", ".join(f"{each.tenant}/{each.operation}/{each.key}" for each in found or self.intents)
            raise LookupError(f"{len(found)} intents match {str(which)!r}. Known intents: {known or 'none'}")
        return found[0]

    def state(self, which: str | UUID) -> str:
        """The state that a client with this key sees: in_progress, completed, failed_retryable, unknown or expired."""
        return self.intent(which).state

    @property
    def outbox(self) -> list[dict[str, Any]]:
        """The calls that are still to be made, asked about or decided."""
        return checked_ledger.outbox(self.url)

    @property
    def dead_letters(self) -> list[RecordedDeadLetter]:
        """The open dead letters, which wait for an operator."""
        return checked_ledger.dead_letters(self.url)

    def evidence(self, which: str | UUID) -> list[HistoryRow]:
        """The evidence of an intent, oldest first: who saw what."""
        return checked_ledger.evidence(self.url, self.intent(which).id)

    def steps(self, which: str | UUID) -> list[RecordedStep]:
        """The steps of a flow that have their end, in their order."""
        return checked_ledger.steps(self.url, self.intent(which).id)

    def _at_the_bank(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with an account of the bank for each provider, which speaks as the provider's contract says."""
        providers: dict[str, Provider] = {}
        for name, provider in catalogue.providers.items():
            if isinstance(provider, HttpProvider):
                token = f"idem-lab-{name}-{uuid4().hex[:8]}"
                self.bank.add_account(account_like(name, provider, token))
                credentials = {"authorization": f"Bearer {token}"}
                accounts = {key: replace(each, credentials=credentials) for key, each in provider.accounts.items()}
                provider = replace(provider, accounts=accounts)
            providers[name] = provider
        return replace(catalogue, providers=providers)

    def _install(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(NAME_ENVIRONMENT, {"environment": self._catalogue.environment})
        engine = create_engine(self.url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)
        with engine.begin() as connection:
            sql_operations.sync(connection, self._catalogue.operations, self._catalogue.providers)

    async def _advanced(self, seconds: float) -> None:
        async with self._database.connection() as connection:
            await stepping.advance(connection, seconds)

    def _killed(self, *, after_the_call: bool) -> None:
        if not self._loop.call(self._daemons.claim_and_die(after_the_call=after_the_call)):
            raise LookupError("no row is due for a worker to claim")
        self.advance(seconds=self._daemons.lease + 1)


NAME_ENVIRONMENT = "UPDATE idem.installation SET environment = %(environment)s"
