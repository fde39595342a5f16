"""One story: calls are accepted, made under faults, asked about, retried, redriven, while the configuration changes.

Between any two steps an operator changes one or two things. Daemons and applications are restarted one after the other,
so each step is made under today's configuration or under the one before. `hold` raises AssertionError as soon as a
promise is broken that can be seen at once; `ended` looks at the rest.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from changing import promises, telling
from changing.plan import BESIDE, CHOICES, PAYS, Plan
from fix_accept import Acceptor
from fix_restore import MEMORY
from fix_spine import Spine
from fix_sql import engine_of, query
from fix_waiting import stopping
from producers.application import Application, synced

from idem.decisions import Replay
from idem.errors import IdemError
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.operator import actions
from idem.outbox.worker import worker
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper
from idem.testing.bank import Bank

FAULTS = ("act_then_drop", "act_then_500", "drop_before_acting", "500_before_acting", "503", "429", "422_before_acting",
          "401", "decline", "pending", "pending_then_declined", "requires_action", "broken_body")  # fmt: skip
STEPS = ("accept", "accept", "accept", "work", "work", "work", "work", "work", "die", "reconcile", "reconcile", "sweep",
         "time", "time", "retry", "cancel", "redrive", "resolve")  # fmt: skip
DAY = 86400.0


@dataclass(frozen=True)
class Wish:
    """What a client wants. Its amount is nobody else's, so that the banks' payments are told apart by it."""

    operation: str
    key: str
    amount: int

    @property
    def params(self) -> dict[str, Any]:
        return {"amount": self.amount, "note": self.key}


class Story:
    """`spine` for its database, which `daemons` reach as a role of theirs. The banks are two systems that know nothing
    of each other."""

    def __init__(self, spine: Spine, daemons: Database, banks: tuple[Bank, Bank], seed: int) -> None:
        self.spine, self.daemons, self.banks = spine, daemons, banks
        self.chance = random.Random(seed)
        self.urls = banks[0].url, banks[1].url
        self.plan = Plan()
        self.catalogues: list[Catalogue] = [self.plan.catalogue(self.urls)]
        self.plans = [self.plan]
        self.wishes: list[Wish] = []
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.may_rest: set[UUID] = set()
        self.ordered: set[int] = set()
        self.log: list[str] = []
        query(spine.url, telling.HANDLED)
        synced(spine.url, self.catalogues[0])

    # The configuration.

    def change(self) -> None:
        """An operator changes one or two things; daemons are restarted one by one."""
        changes = {}
        for name in self.chance.sample(list(CHOICES), self.chance.choice([1, 1, 2])):
            # Often it is put back, or rows would soon be open that nothing serves any more.
            back = self.chance.random() < 0.4
            changes[name] = CHOICES[name][0] if back else self.chance.choice(CHOICES[name])
        self._use(self.plan.but(**changes), ", ".join(f"{name}={value}" for name, value in changes.items()))

    def _use(self, plan: Plan, said: str) -> None:
        self.log.append(f"[{said}]")
        self.plan = plan
        self.plans = [self.plans[-1], plan]
        self.catalogues = [self.catalogues[-1], plan.catalogue(self.urls)]
        synced(self.spine.url, self.catalogues[-1])

    def _now(self) -> Catalogue:
        return self.chance.choice(self.catalogues)

    # The steps.

    async def step(self) -> None:
        what = self.chance.choice(STEPS)
        self.log.append(what)
        await getattr(self, what)()
        await promises.hold(self)

    async def accept(self) -> None:
        name = PAYS if self.chance.random() < 0.8 else BESIDE
        wish = Wish(name, f"k{len(self.wishes)}", 100 + len(self.wishes))
        self.wishes.append(wish)
        with suppress(IdemError, psycopg.Error):
            self.ask(wish)

    def ask(self, wish: Wish) -> tuple[int, bytes] | None:
        """Ask through one of the doors for a transaction of the caller's own; the answer, if there is one yet."""
        if self.chance.random() < 0.4:
            self.log.append("by SQL")
            found = Application(self.spine.url).once(wish.key, wish.params, operation=wish.operation)
            return (found.response_status, bytes(found.response_body)) if found.decision == "replay" else None
        known = self._now()
        acceptor = Acceptor(known.operations, known.providers)
        with engine_of(self.spine.url).begin() as connection:
            decided = acceptor.accept(connection, "t", wish.operation, wish.key, wish.params)
        return (decided.answer.status, decided.answer.body) if isinstance(decided, Replay) else None

    async def work(self, dies: bool = False) -> None:
        known = self._now()
        for bank in self.banks:
            if self.chance.random() < 0.7:
                bank.forget_script()
                fault = self.chance.choice(FAULTS)
                self.log[-1] += f" {fault}"
                bank.script(None, [fault])
        runner = (
            HandlerRunner(self.spine.url, telling.handlers(self.plan["handlers"])) if PAYS in known.operations else None
        )
        one = worker.Worker(self.daemons, known, self.spine.settings, runner)
        if dies:
            # It is killed before it reports anything.
            one.settler.put = lambda report: None  # type: ignore[method-assign]
        async with stopping(one):
            await one.run_once()

    async def die(self) -> None:
        await self.work(dies=True)

    async def reconcile(self) -> None:
        one = Reconciler(self.daemons, self._now(), ReconcilerSettings(lease=30), slots=4, margin=1)
        async with stopping(one):
            await one.run_once(hasten=self.chance.random() < 0.5)

    async def sweep(self) -> None:
        await Sweeper(self.daemons, self._now(), self.plan["kept"]).run_once()

    async def time(self) -> None:
        await self.pass_time(self.chance.choice([10.0, 35.0, 200.0, 700.0, 3600.0, MEMORY / 3, 1.2 * MEMORY]))

    async def pass_time(self, seconds: float) -> None:
        await self.spine.advance(seconds)
        for bank in self.banks:
            bank.shift_clock(seconds)

    async def retry(self) -> None:
        """Clients come again with keys that the database knows and that have not expired."""
        known = await promises.keys(self)
        for wish in self.wishes:
            if known.get((wish.operation, wish.key), "expired") != "expired" and self.chance.random() < 0.6:
                with suppress(IdemError, psycopg.Error):
                    self.ask(wish)

    async def cancel(self) -> None:
        await self._command(lambda connection, intent, version: actions.cancel(
            connection, self._now(), intent, by="ann", reason="r"))  # fmt: skip

    async def redrive(self) -> None:
        await self._command(lambda connection, intent, version: actions.redrive(
            connection, self._now(), intent, by="ann", reason="r", version=version))  # fmt: skip

    async def resolve(self) -> None:
        """An operator who looked at the bank says the truth."""
        await self._command(self._resolved)

    async def _resolved(self, connection: Any, intent: UUID, version: int) -> None:
        row = await self.spine.one("SELECT operation, idempotency_key FROM idem.intents WHERE id = %(i)s", i=intent)
        wish = next(w for w in self.wishes if (w.operation, w.key) == (row["operation"], row["idempotency_key"]))
        if not promises.effects(self, wish):
            await actions.resolve_failed(connection, self._now(), intent, by="ann", reason="r", version=version)

    async def _command(self, command: Callable[[Any, UUID, int], Any]) -> None:
        for row in await self.spine.all("SELECT id, version FROM idem.intents ORDER BY id"):
            if self.chance.random() < 0.4:
                async with self.daemons.connection() as connection:
                    with suppress(IdemError):
                        await command(connection, row["id"], row["version"])

    # The end.

    async def finish(self) -> None:
        """Nothing goes wrong any more, under the last configuration or under the first one, and much time passes."""
        if self.chance.random() < 0.5:
            self._use(Plan(), "as at the beginning")
        self._use(self.plan, "everywhere")
        self.log.append("the end")
        for seconds in (10.0, 200.0, 400.0, 700.0, 4000.0, 4000.0, 4000.0, DAY, DAY, DAY):
            await self.sweep()
            await self.quiet_work()
            await Reconciler(self.daemons, self.catalogues[-1], ReconcilerSettings(lease=30), slots=4,
                             margin=1).run_once(hasten=True)  # fmt: skip
            await promises.hold(self)
            await self.pass_time(seconds)
        await self.sweep()
        await promises.hold(self)

    async def quiet_work(self) -> None:
        for bank in self.banks:
            bank.forget_script()
        async with stopping(worker.Worker(self.daemons, self.catalogues[-1], self.spine.settings)) as one:
            await one.run_once()
