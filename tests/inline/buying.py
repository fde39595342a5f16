"""Inline operations over the spine's bank: the caller's own code pays there, and reports how that ended."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import httpx
from fix_database import connected
from fix_line import target, through
from fix_spine import Spine, catalogue, operation
from fix_sql import query

from idem.decisions import Decision
from idem.outbox.accept.prepare import Prepared, prepare
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL, Response
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.inline import InlineRun, InlineRuns
from idem.outbox.providers.local import LocalProvider
from idem.outcomes import Pending, Refused, Succeeded
from idem.sweeper.daemon import SweepResult
from idem.testing.proxy import Proxy

INLINE: dict[str, Any] = {"kind": "inline", "redrive": "none", "retry": "client", "lease": 30.0}


def inline(name: str, provider: str, **changes: Any) -> OperationSpec:
    return operation(name, provider, **{**INLINE, **changes})


def buying(url: str, **changes: Any) -> Catalogue:
    """The spine's two providers and the local one, each with an inline operation `buy.<provider>`."""
    known = catalogue(url)
    providers = {**known.providers, LOCAL: LocalProvider()}
    operations = {f"buy.{name}": inline(f"buy.{name}", name, **changes) for name in providers}
    return replace(known, providers=providers, operations={**known.operations, **operations})


def prepared(known: Catalogue, database_url: str, operation: str, key: str, amount: int = 100) -> Prepared:
    """A request as a user's code would make it."""
    ((secret,),) = query(database_url, "SELECT secret FROM idem.installation")
    return prepare(
        known.operations, known.providers, bytes(secret), tenant="t", operation=operation, key=key,
        params={"amount": amount},
    )  # fmt: skip


async def pay(known: Catalogue, provider: str, key: str, amount: int = 100) -> Succeeded | Refused | Pending:
    """The user's own call."""
    body: Mapping[str, Any] = {"amount": amount, "currency": "eur"}
    body = body if provider == "keyed" else {**body, "reference": key}
    account = known.providers[provider].accounts[provider]
    headers = {**account.credentials, "idempotency-key": key} if provider == "keyed" else {**account.credentials}
    async with httpx.AsyncClient(base_url=account.origin, timeout=10, verify=False) as http:
        answer = await http.post("/payments", json=body, headers=headers)
    outcome, _ = known.providers[provider].classify(Response(answer.status_code, answer.headers, answer.content))
    assert isinstance(outcome, Succeeded | Refused | Pending), (outcome, answer.text)
    return outcome


@dataclass
class Shop:
    """A process that makes inline calls, beside the daemons of the spine."""

    spine: Spine
    runs: InlineRuns

    @property
    def known(self) -> Catalogue:
        return self.spine.catalogue

    async def begin(self, key: str = "k1", amount: int = 100, *, operation: str = "buy.keyed") -> InlineRun | Decision:
        return await self.runs.begin(prepared(self.known, self.spine.url, operation, key, amount))

    async def run(self, key: str = "k1", amount: int = 100, *, operation: str = "buy.keyed") -> InlineRun:
        begun = await self.begin(key, amount, operation=operation)
        assert isinstance(begun, InlineRun), begun
        return begun

    async def pay(self, run: InlineRun, provider: str = "keyed") -> Succeeded | Refused | Pending:
        return await pay(self.known, provider, run.provider_key)

    async def sweep(self) -> SweepResult:
        return await self.spine.sweep()

    async def is_swept(self) -> bool:
        return (await self.sweep()).to_unknown > 0

    async def lose(self, run: InlineRun | None = None) -> None:
        """The lease of this run, or each, ends by the database's clock, and nobody has told the run."""
        await self.spine.execute(
            "UPDATE idem.outbox SET claimed_at = claimed_at - interval '1 hour', claimed_until = statement_timestamp()"
            " - interval '1 ms' WHERE status = 'claimed' AND intent_id = coalesce(%(i)s, intent_id)",
            i=run and run.intent_id,
        )

    async def settle(self, intent: UUID, *states: str) -> str:
        """Let time pass and every daemon step, until the key is in one of `states`."""
        for _ in range(12):
            await self.spine.advance(200)
            await self.sweep()
            await self.spine.reconcile(hasten=True)
            await self.spine.work()
            if (state := str((await self.spine.key(intent))["state"])) in states:
                return state
        raise AssertionError(f"it is {state}")

    async def ends(self, intent: UUID) -> list[tuple[str, str | None]]:
        """The ends of claims on record: who, and the row's status after it."""
        rows = await self.spine.all(
            "SELECT source, to_status FROM idem.evidence WHERE intent_id = %(i)s AND from_status = 'claimed'"
            " ORDER BY id", i=intent,
        )  # fmt: skip
        return [(row["source"], row["to_status"]) for row in rows]


@asynccontextmanager
async def behind(spine: Spine, watch: Any, *, lease: float = 30.0, **options: Any) -> AsyncIterator[Shop]:
    """A shop whose line to the database is watched; its daemons have their own."""
    spine.catalogue = buying(spine.bank.url, lease=lease)
    timeouts = Timeouts(connect=2, statement=5)
    async with (
        Proxy(target(spine.url), watch) as proxy,
        connected(through(spine.url, proxy), size=3, timeouts=timeouts) as database,
    ):
        made = shop(spine, database, **options)
        async with made.runs:
            yield made


def shop(spine: Spine, database: Database | None = None, **options: Any) -> Shop:
    """The shop over this spine, whose daemons know its operations."""
    if "buy.keyed" not in spine.catalogue.operations:
        spine.catalogue = buying(spine.bank.url)
    return Shop(spine, InlineRuns(database or spine.database, spine.catalogue, **options))
