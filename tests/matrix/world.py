"""One run of cells: a bank, an endpoint, and worker, sweeper and reconciler stepped together through hours.

Every cell has its own account at the bank, and so its own lane, breaker, keys and secret: no cell can help or disturb
another. What the run leaves is plain data (`Observed`); the checks read that alone.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from fix_accept import Acceptor
from fix_database import ENVIRONMENT
from fix_spine import operation
from fix_sql import driven
from fix_tables import Tables
from fix_waiting import until
from fix_webhooks import free_port, serving
from matrix.cells import ORDERS, Cell
from matrix.observed import Observed, Told
from sqlalchemy import create_engine

from idem import Answer
from idem.decisions import Accepted, Decision
from idem.outbox.calls.breaker import Breaker
from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import name
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply
from idem.outbox.worker.worker import Worker
from idem.outcomes import Refused, Succeeded
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper
from idem.testing.bank import Bank, BankSettings, Received, RequestMatch, ScriptStep
from idem.testing.bank.records import EndedRequest

HOURS = (7, 30, 100, 200, 400, 700, 900, 3700, 700, 700, 3700, 700, 700, 3700)
"""Seconds of the steps of a run, which ends when nothing is open any more. The first is taken while what stalls is
still under way."""


@dataclass
class World(Tables):
    """The handles of a run."""

    bank: Bank
    catalogue: Catalogue
    acceptor: Acceptor
    url: str
    webhooks: bool
    intents: dict[UUID, Cell] = field(default_factory=dict)
    clients: dict[UUID, str] = field(default_factory=dict)
    delays: dict[tuple[str, int], float] = field(default_factory=dict)
    shifted: float = 0.0

    def __post_init__(self) -> None:
        self.engine = create_engine(driven(self.url))
        settings = WorkerSettings(lease=30, margin=1, slots=8)
        self.worker = Worker(self.database, self.catalogue, settings)
        self.reconciler = Reconciler(self.database, self.catalogue, ReconcilerSettings(lease=30), slots=8, margin=1)
        self.sweeper = Sweeper(self.database, self.catalogue)

    def ask(self, cell: Cell, key: str) -> Decision:
        """A client's request."""
        with self.engine.begin() as connection:
            return self.acceptor.accept(connection, "t", f"pay.{cell.name}", key, {"amount": 100})

    async def accept(self, cells: Iterable[Cell]) -> None:
        """Every intent of every cell, and what its sends will meet."""

        def all_of_them() -> None:
            for cell in cells:
                for n in range(cell.intents):
                    decision = self.ask(cell, f"{cell.name}-{n}")
                    assert isinstance(decision, Accepted), decision
                    self.intents[decision.intent_id] = cell
                    self.clients[decision.intent_id] = f"{cell.name}-{n}"

        await asyncio.to_thread(all_of_them)
        plays: dict[tuple[str, int], ScriptStep] = {}
        keys = {r["intent_id"]: r["key"] for r in await self.all(
            "SELECT intent_id, provider_key::text AS key FROM idem.requests"
        )}  # fmt: skip
        for n, (intent, cell) in enumerate(self.intents.items()):
            order = ORDERS[n % len(ORDERS)]
            for nth in range(1, len(cell.faults) + 1):
                plays[keys[intent], nth] = ScriptStep(cell.fault(nth), webhook=order)
                self.delays[keys[intent], nth] = order.delay
        for (key, nth), step in plays.items():
            self.bank.script(_nth(key, nth), [step])
        for cell in cells:
            if cell.lookups:
                self.bank.script(RequestMatch(account=cell.name, method="GET"), list(cell.lookups))
            if cell.away:
                self.bank.script(_away(cell.name, time.time() + cell.away), ["503"] * 1000)

    async def step(self, seconds: float) -> None:
        """Let time pass for rows and bank alike, then let every daemon do a pass."""
        await self.advance(seconds)
        self.bank.shift_clock(seconds)
        self.shifted += seconds
        await until(self._delivered, "an event is not delivered")
        await self.passes()

    async def passes(self) -> None:
        for lane in (*self.worker.lanes, *self.reconciler.lanes):
            # As after a restart of the process: its pauses are seconds of the real clock.
            lane.lane.breaker = Breaker()
        await self.sweeper.run_once()
        await self.reconciler.run_once()
        await self.worker.run_once()

    async def quiet(self) -> None:
        """Nothing stalls at the bank any more: what is sent may act for as long as the flight limit, not longer."""

        async def answered() -> bool:
            records = self.bank.log.records
            done = {r.request for r in records if isinstance(r, EndedRequest)}
            return all(r.id in done for r in records if isinstance(r, Received) and r.complete)

        await until(answered, "the bank still works on a request")
        await until(self._delivered, "an event is not delivered")

    async def _delivered(self) -> bool:
        if not self.webhooks:
            return True
        log, now = self.bank.log, time.time() + self.shifted
        nth = {each.id: each.nth for each in log.requests}
        done = {(each.payment, each.type) for each in log.webhooks if each.status is not None and each.status < 300}
        due = []
        for each in log.payments():
            delay = self.delays.get((each.key or each.reference or "", nth[each.request]), 0.0)
            due.append((each.id, f"payment.{each.status}", each.at + delay))
            if each.becomes is not None and each.settles_at is not None:
                due.append((each.id, f"payment.{each.becomes}", each.settles_at + delay))
        voided = {r.payment for r in log.records if type(r).__name__ == "Voided"}
        return all((id, kind) in done for id, kind, at in due if at <= now and id not in voided)

    async def open(self) -> int:
        return len(await self.all("SELECT FROM idem.outbox WHERE status <> 'held' OR redrive_at IS NOT NULL"))

    async def observe(self, began: float) -> Observed:
        log = self.bank.log
        letters = await self.all("SELECT intent_id, reason, resolved_at IS NULL AS open FROM idem.dead_letters")
        evidence = await self.all("SELECT * FROM idem.evidence ORDER BY intent_id, id")
        events = await self.all("SELECT * FROM idem.webhook_events ORDER BY id")
        before = await self._answers()
        rows = await self.all(
            "SELECT n.*, (SELECT o.status FROM idem.outbox o WHERE o.intent_id = n.id) AS status,"
            " ARRAY(SELECT r.provider_key::text FROM idem.requests r WHERE r.intent_id = n.id ORDER BY r.generation)"
            " AS keys, (SELECT r.outbox_id FROM idem.requests r WHERE r.intent_id = n.id LIMIT 1) AS row"
            " FROM idem.intents n"
        )
        done = [r for r in rows if r["state"] == "completed"]
        heard = await asyncio.to_thread(
            lambda: {r["id"]: self.ask(self.intents[r["id"]], self.clients[r["id"]]) for r in done}
        )
        proven = {r["id"]: await self._prove_again(r) for r in done}
        after = await self._answers()
        told = [
            Told(
                r["id"], self.intents[r["id"]], r["state"], r["status"], r["outcome"], r["provider_reference"],
                tuple(r["keys"]), (before[r["id"]], after[r["id"]]), heard.get(r["id"]), proven.get(r["id"], ()),
                tuple((each["reason"], each["open"]) for each in letters if each["intent_id"] == r["id"]),
                tuple(each for each in evidence if each["intent_id"] == r["id"]),
            )
            for r in rows
        ]  # fmt: skip
        return Observed(log, tuple(told), self.webhooks, tuple(events), self.shifted, time.monotonic() - began)

    async def _answers(self) -> dict[UUID, tuple[Any, ...]]:
        rows = await self.all(
            "SELECT intent_id, state, response_status, response_headers, response_body FROM idem.idempotency_keys"
        )
        return {r["intent_id"]: tuple(r.values()) for r in rows}

    async def _prove_again(self, row: dict[str, Any]) -> tuple[str, ...]:
        """The proof that settled it once more, and one that says something else: what becomes of them."""
        same: Succeeded | Refused
        same, other = Succeeded(row["provider_reference"]), Refused("pay_other")
        if row["outcome"] == "refused":
            same, other = Refused(row["provider_reference"]), Succeeded("pay_other")
        fates = []
        terms = self.catalogue.require(row["operation"])
        for proof in (same, other):
            found = StoredProof(uuid4(), "webhook", proof, Answer(201, b'{"again": true}'))
            told = Evidence("webhook", "webhook", name(proof))
            fates.append(await self.run(apply, row["row"], found, told, terms))
        return tuple(fates)


def _nth(key: str, nth: int) -> Callable[[Received], bool]:
    return lambda sent: sent.asks == "effect" and sent.nth == nth and key in (sent.key, sent.reference)


def _away(account: str, until: float) -> Callable[[Received], bool]:
    return lambda sent: sent.account == account and sent.at < until and (sent.method == "GET" or sent.nth > 1)


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path, cells: Sequence[Cell], *, webhooks: bool) -> AsyncIterator[World]:
    """A world whose intents are accepted and not sent."""
    variants = {cell.variant.name: cell.variant for cell in cells}
    assert len({cell.name for cell in cells}) == len(cells), "two cells have the same name"
    port = free_port()
    accounts = [
        cell.variant.bank_account(
            cell.name, f"http://127.0.0.1:{port}/webhooks/{cell.variant.name}" if webhooks else None
        )
        for cell in cells
    ]
    settings = BankSettings(
        log=folder / "bank.jsonl", durable=False, require_auth=True, accounts=tuple(accounts), pending_seconds=20,
    )  # fmt: skip
    database = Database(url, name="idem-matrix", size=16, timeouts=Timeouts(lock=10, connect=10))
    async with Bank(settings) as bank, contextlib.AsyncExitStack() as stack:
        await database.open()
        stack.push_async_callback(database.close)
        names = {name: [cell.name for cell in cells if cell.variant.name == name] for name in variants}
        providers = {name: each.provider(bank.url, names[name], webhooks) for name, each in variants.items()}
        base = operation("pay", "keyed")
        operations = {f"pay.{cell.name}": cell.variant.operation_of(cell.name, base) for cell in cells}
        known = Catalogue(ENVIRONMENT, providers, operations)
        world = World(database, bank, known, Acceptor(operations, providers), url, webhooks)
        stack.callback(world.engine.dispose)
        stack.push_async_callback(world.worker.close)
        stack.push_async_callback(world.reconciler.close)
        if webhooks:
            await stack.enter_async_context(serving(url, known, port=port))
        await world.accept(cells)
        yield world


async def live(
    url: str, folder: Path, cells: Sequence[Cell], *, webhooks: bool, steps: Sequence[float] = HOURS
) -> Observed:
    """Run the cells to their end: the first sends, then every step, until nothing is open and the last event came."""
    began = time.monotonic()
    async with opened(url, folder, cells, webhooks=webhooks) as world:
        await world.worker.run_once()
        for n, seconds in enumerate(steps):
            if n:
                await world.quiet()
            await world.step(seconds)
            late = webhooks and world.shifted < 1000
            if not late and not await world.open():
                break
        await world.quiet()
        return await world.observe(began)


def run(url: str, folder: Path, cells: Sequence[Cell], **options: Any) -> Observed:
    """The same on a loop of its own."""
    return asyncio.run(live(url, folder, cells, **options))
