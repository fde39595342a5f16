"""The spine: a bank, an operation over each kind of account, and all daemons, stepped by hand, in one process.

`keyed` is an account whose bank stores answers under our key; `keyless` is one that ignores keys but answers look-ups
by our reference. Time does not pass in tests; `advance` moves the rows.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar
from uuid import UUID

import fix_kept
from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_tables import Tables
from fix_waiting import stopping

from idem import Answer
from idem.decisions import Accepted, Decision
from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account, Contract, KeyRule, LookupRule, ProviderRequest
from idem.outbox.domain.operation import FinalOutcome, OperationSpec
from idem.outbox.domain.outcomes import Succeeded
from idem.outbox.operator import actions, approvals
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.lookups import ById, ByKey, ByReference, Lookup
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, statuses
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.tenants import tokens
from idem.outbox.values import json_pointer
from idem.outbox.worker import worker
from idem.reconciler.daemon import Reconciler, ReconcilerPass
from idem.sweeper.daemon import Sweeper, SweepResult
from idem.testing.bank import Bank, BankAccount, BankFault, BankSettings, ScriptStep

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
Faults = Iterable[str | BankFault | ScriptStep | dict[str, Any] | None]
P = json_pointer.parse
PLACES = RulePlaces(reference=P("/id"), status=P("/status"), fields={"amount": P("/amount")})
OUTCOME = (
    Rule(Says.FINAL, body=(Condition(P("/status"), ("succeeded",)),), places=PLACES),
    Rule(Says.PENDING, body=(Condition(P("/status"), ("processing",)),), places=PLACES),
    Rule(Says.REFUSED, status=statuses(["2xx", 402]), body=(Condition(P("/status"), ("declined",)),), places=PLACES),
)
ERRORS = ErrorShape(shape="/error/code", code="/error/code", message="/error/message", reference="/id")
CONTRACT = Contract(
    "bank", connect_timeout=2, deadline=2, flight_limit=60, pause_allowance=120,
    schedule=(5, 30, 120, 600, 3600), pending_schedule=(5, 30), pending_limit=86400,
)  # fmt: skip
KEYED = replace(
    CONTRACT,
    provider="keyed",
    key=KeyRule("header", "idempotency-key", "stored", retention=86400, margin=180),
    lookup=LookupRule(by_key=True, by_id=True, horizon=10, agree=2),
)
KEYLESS = replace(
    CONTRACT, provider="keyless", lookup=LookupRule(by_reference=True, by_id=True, horizon=10, agree=2), start_mark=True
)
BY_ID = ById(path="/payments/{idem.reference}", absent=404)


def lookup(by: str) -> Lookup:
    """A look-up at the bank by our key, which is its idempotency key or the reference of the payment."""
    way, member = (ByReference, "/reference") if by == "reference" else (ByKey, "/idempotency_key")
    return way(path=f"/payments?{by}={{idem.key}}", object="/data/0", match=member, empty="/data")


def operation(name: str, provider: str, **changes: Any) -> OperationSpec:
    """An operation that pays through one of the two accounts."""

    def request(params: Any) -> ProviderRequest:
        body = {"amount": params["amount"], "currency": "eur"}
        return ProviderRequest(
            "POST", "/payments", json=body | ({"reference": KEY_TEXT} if provider == "keyless" else {})
        )

    def answer(outcome: FinalOutcome, intent: str) -> Answer:
        body = {"intent": intent, "payment": outcome.reference, "status": outcome.status}
        return Answer(201 if outcome.succeeded else 402, json.dumps(body).encode())

    base = OperationSpec(name, provider, provider, lambda params: None, request, answer)
    return replace(base, **changes)


@dataclass
class Spine(Tables):
    """Everything that a test of the whole path uses."""

    bank: Bank
    catalogue: Catalogue
    acceptor: Acceptor
    url: str
    lease: ClassVar[float] = 30
    """The lease of a reconciler, in seconds."""
    settings: WorkerSettings = field(default_factory=lambda: WorkerSettings(lease=30, margin=1, slots=8))

    def accept(
        self, key: str = "k1", amount: int = 100, *, operation: str = "pay.keyed", tenant: str = "t",
        params: Any = None, **options: Any,
    ) -> Decision:  # fmt: skip
        with fix_kept.engine(self.url).begin() as connection:
            return self.acceptor.accept(connection, tenant, operation, key, params or {"amount": amount}, **options)

    def accepted(self, key: str = "k1", amount: int = 100, **options: Any) -> UUID:
        decision = self.accept(key, amount, **options)
        assert isinstance(decision, Accepted), decision
        return decision.intent_id

    async def sent(self, key: str = "k1", amount: int = 100, *, operation: str = "pay.keyed", **bank: Any) -> UUID:
        """Accept an intent and send it with one pass of a worker; the bank plays these faults."""
        intent = self.accepted(key, amount, operation=operation)
        await self.work(**bank)
        return intent

    async def work(
        self, *, after: float = 0, faults: Faults = (), match: Any = None, times: int = 1
    ) -> worker.WorkerPass:
        """Make one pass of a worker, `after` so many seconds, or several; returns the last.

        The next requests that match get these faults of the bank.
        """
        if faults:
            self.bank.script(match, faults)
        for _ in range(times):
            if after:
                await self.advance(after)
            async with stopping(worker.Worker(self.database, self.catalogue, self.settings)) as one:
                done = await one.run_once()
        return done

    async def reconcile(self, *, after: float = 0, times: int = 1, **options: Any) -> ReconcilerPass:
        """Make one pass of a reconciler, `after` so many seconds, or several; returns the last."""
        settings = ReconcilerSettings(lease=self.lease)
        for _ in range(times):
            if after:
                await self.advance(after)
            async with stopping(Reconciler(self.database, self.catalogue, settings, slots=4, margin=1)) as one:
                done = await one.run_once(**options)
        return done

    async def sweep(self, *, after: float = 0) -> SweepResult:
        """Make one pass of a sweeper, `after` so many seconds."""
        if after:
            await self.advance(after)
        return await Sweeper(self.database, self.catalogue).run_once()

    async def expect(self, intent: UUID, **expected: Any) -> None:
        """Like `Tables.expect`; `effects` is the number of payments that the bank has made."""
        if "effects" in expected:
            assert self.effects() == expected.pop("effects")
        await super().expect(intent, **expected)

    def provider(self, kind: str = "keyed") -> HttpProvider:
        found = self.catalogue.providers[kind]
        assert isinstance(found, HttpProvider)
        return found

    async def works(self) -> int:
        """Make one pass of a worker; returns how many payments the bank has made by then."""
        await self.work()
        return self.effects()

    async def rest(self) -> None:
        """Let queued rows become too old to be sent, and a sweeper hold them."""
        await self.execute("UPDATE idem.outbox SET start_before = statement_timestamp()")
        await self.sweep()

    async def act(self, action: str, intent: UUID, *, by: str = "ann", reason: str = "a test", **options: Any) -> Any:
        """Run an operator's action on the current version of the intent."""
        version = await self.value("SELECT version FROM idem.intents WHERE id = %(i)s", i=intent)
        arguments = {"by": by, "reason": reason, "version": version} | options
        if action == "resolve_completed":
            outcome = arguments.pop("outcome", Succeeded("pay_7", "succeeded"))
            return await self.run(actions.resolve_completed, self.catalogue, Renderer(), intent, outcome, **arguments)
        acts = getattr(approvals if action in ("approve", "reject") else actions, action)
        return await self.run(acts, self.catalogue, intent, **arguments)

    async def token(self, tenant: str = "t", label: str = "test") -> dict[str, str]:
        """The headers of a request with a new token."""
        _, token = await self.run(tokens.create, tenant, label)
        return {"Authorization": f"Bearer {token}"}

    def know(self, name: str = "pay.keyed", provider: str = "keyed", **changes: Any) -> Catalogue:
        """Define the operation of this name: a payment through that account, with these changes."""
        known = {**self.catalogue.operations, name: operation(name, provider, **changes)}
        self.catalogue = replace(self.catalogue, operations=known)
        self.acceptor.operations = known
        return self.catalogue

    async def status(self, intent: UUID) -> str | None:
        """The status of its row; None if it has none."""
        return (await self.row_if_any(intent) or {"status": None})["status"]

    def change(self, kind: str, **changes: Any) -> None:
        """Change these fields of the provider of this kind."""
        known = self.catalogue.providers
        self.catalogue = replace(self.catalogue, providers={**known, kind: replace(known[kind], **changes)})

    def operate(self, name: str, **changes: Any) -> None:
        """Change these fields of this operation."""
        known = self.catalogue.operations
        self.catalogue = replace(self.catalogue, operations={**known, name: replace(known[name], **changes)})

    def effects(self) -> int:
        """The number of payments that the bank has made, by any client."""
        return len(self.bank.log.payments())


def catalogue(url: str, **operations: Any) -> Catalogue:
    """The two providers at this address, with an operation each."""
    accounts = {name: Account(name, url, {"authorization": f"Bearer {name}-token"}) for name in ("keyed", "keyless")}
    providers = {
        "keyed": HttpProvider(KEYED, {"keyed": accounts["keyed"]}, OUTCOME, ERRORS, (BY_ID, lookup("key"))),
        "keyless": HttpProvider(KEYLESS, {"keyless": accounts["keyless"]}, OUTCOME, ERRORS,
                                (BY_ID, lookup("reference"))),
    }  # fmt: skip
    known = {f"pay.{name}": operation(f"pay.{name}", name) for name in providers}
    return Catalogue(ENVIRONMENT, providers, known | operations)


@contextlib.asynccontextmanager
async def standing(database: Database, url: str, folder: Path) -> AsyncIterator[Spine]:
    """The spine on this database, with a bank that succeeds until the test sets a fault."""
    settings = BankSettings(
        log=folder / "bank.jsonl",
        durable=False,
        require_auth=True,
        accounts=(BankAccount("keyed", "keyed-token"), BankAccount("keyless", "keyless-token", replay="none")),
    )
    async with Bank(settings) as bank:
        known = catalogue(bank.url)
        yield Spine(database, bank, known, Acceptor(known.operations, known.providers), url)
