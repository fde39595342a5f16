"""The whole path in one process: a bank, an operation over each kind of account, and every daemon stepped by hand.

`keyed` is an account whose bank stores answers under our key; `keyless` is one that knows no keys but answers look-ups
by our reference. Time does not pass in tests: rows are moved (`advance`).
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

from fix_accept import Acceptor
from fix_database import ENVIRONMENT, engine_of
from psycopg.rows import dict_row

from idem import Answer
from idem.decisions import Accepted, Decision
from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account, Contract, KeyRule, LookupRule, ProviderRequest
from idem.outbox.domain.operation import Final, OperationSpec
from idem.outbox.providers.errors import ErrorShape
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.lookups import ById, ByKey, ByReference, Lookup
from idem.outbox.providers.outcome_rules import Condition, Rule, RulePlaces, Says, statuses
from idem.outbox.providers.template import KEY_TEXT
from idem.outbox.values import json_pointer
from idem.outbox.worker import worker
from idem.reconciler.daemon import Reconciler, ReconcilerPass
from idem.testing import stepping
from idem.testing.bank import Bank, BankAccount, BankFault, BankSettings, ScriptStep

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
    """Asking the bank by our key, as its idempotency key or as the reference in the payment."""
    way, member = (ByReference, "/reference") if by == "reference" else (ByKey, "/idempotency_key")
    return way(path=f"/payments?{by}={{idem.key}}", object="/data/0", match=member, empty="/data")


def operation(name: str, provider: str, **changes: Any) -> OperationSpec:
    """A payment through one of the two accounts."""

    def request(params: Any) -> ProviderRequest:
        body = {"amount": params["amount"], "currency": "eur"}
        return ProviderRequest(
            "POST", "/payments", json=body | ({"reference": KEY_TEXT} if provider == "keyless" else {})
        )

    def answer(outcome: Final, intent: str) -> Answer:
        body = {"intent": intent, "payment": outcome.reference, "status": outcome.status}
        return Answer(201 if outcome.succeeded else 402, json.dumps(body).encode())

    base = OperationSpec(name, provider, provider, lambda params: None, request, answer)
    return replace(base, **changes)


@dataclass
class Spine:
    """Handles of one test. `advance` moves every time of every row into the past, as if it had passed."""

    database: Database
    bank: Bank
    catalogue: Catalogue
    acceptor: Acceptor
    url: str
    lease: ClassVar[float] = 30
    """The lease of a reconciler."""
    settings: WorkerSettings = field(default_factory=lambda: WorkerSettings(lease=30, margin=1, slots=8))

    def accept(
        self, key: str = "k1", amount: int = 100, *, operation: str = "pay.keyed", tenant: str = "t"
    ) -> Decision:
        engine = engine_of(self.url)
        with engine.begin() as connection:
            return self.acceptor.accept(connection, tenant, operation, key, {"amount": amount})

    def accepted(self, key: str = "k1", amount: int = 100, *, operation: str = "pay.keyed") -> UUID:
        decision = self.accept(key, amount, operation=operation)
        assert isinstance(decision, Accepted), decision
        return decision.intent_id

    async def sent(self, key: str = "k1", amount: int = 100, *, operation: str = "pay.keyed", **bank: Any) -> UUID:
        """Accepted, and sent by one pass of a worker; the bank answers with these faults."""
        intent = self.accepted(key, amount, operation=operation)
        await self.work(**bank)
        return intent

    async def work(self, *, after: float = 0, faults: Faults = (), match: Any = None) -> worker.WorkerPass:
        """One pass of a worker, `after` so many seconds. The next requests that match meet these faults of the bank."""
        if faults:
            self.bank.script(match, faults)
        if after:
            await self.advance(after)
        one = worker.Worker(self.database, self.catalogue, self.settings)
        try:
            return await one.run_once()
        finally:
            await one.close()

    async def reconcile(self, *, after: float = 0, **options: Any) -> ReconcilerPass:
        """One pass of a reconciler, `after` so many seconds."""
        if after:
            await self.advance(after)
        one = Reconciler(self.database, self.catalogue, ReconcilerSettings(lease=self.lease), slots=4, margin=1)
        try:
            return await one.run_once(**options)
        finally:
            await one.close()

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass for every row."""
        async with self.database.connection() as connection:
            await stepping.advance(connection, seconds)

    async def all(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self.database.connection() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            return await (await cursor.execute(sql, parameters)).fetchall()

    async def one(self, sql: str, **parameters: Any) -> dict[str, Any]:
        rows = await self.all(sql, **parameters)
        assert len(rows) == 1, rows
        return rows[0]

    async def execute(self, sql: str, parameters: Any = None) -> None:
        async with self.database.connection() as connection:
            await connection.execute(sql, parameters)

    async def row(self, intent: UUID) -> dict[str, Any]:
        return await self.one("SELECT * FROM idem.outbox WHERE intent_id = %(i)s", i=intent)

    async def row_if_any(self, intent: UUID) -> dict[str, Any] | None:
        rows = await self.all("SELECT * FROM idem.outbox WHERE intent_id = %(i)s", i=intent)
        return rows[0] if rows else None

    async def key(self, intent: UUID) -> dict[str, Any]:
        return await self.one("SELECT * FROM idem.idempotency_keys WHERE intent_id = %(i)s", i=intent)

    async def letters(self, intent: UUID, *, open: bool = True) -> list[str]:
        rows = await self.all(
            "SELECT reason FROM idem.dead_letters WHERE intent_id = %(i)s AND (resolved_at IS NULL) = %(o)s"
            " ORDER BY reason", i=intent, o=open,
        )  # fmt: skip
        return [row["reason"] for row in rows]

    async def evidence(self, intent: UUID) -> list[tuple[str, str, str | None]]:
        rows = await self.all(
            "SELECT source, kind, outcome FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id", i=intent
        )
        return [(row["source"], row["kind"], row["outcome"]) for row in rows]

    def effects(self) -> int:
        """Payments that the bank has made, whoever asked for them."""
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
    """The whole path on this database, with a bank that behaves until it is told otherwise."""
    settings = BankSettings(
        log=folder / "bank.jsonl",
        durable=False,
        require_auth=True,
        accounts=(BankAccount("keyed", "keyed-token"), BankAccount("keyless", "keyless-token", replay="none")),
    )
    async with Bank(settings) as bank:
        known = catalogue(bank.url)
        yield Spine(database, bank, known, Acceptor(known.operations, known.providers), url)
