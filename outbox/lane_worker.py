"""The lanes of a worker: each claims only what it can start now, makes the calls, and reports what it saw."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from idem.outbox import claim as claims
from idem.outbox import clock, telemetry
from idem.outbox.answers import Rendered, Renderer
from idem.outbox.catalogue import Catalogue
from idem.outbox.claim import Claimed, LaneName
from idem.outbox.daemon import BROKEN_WAIT, Life, Trouble, wait
from idem.outbox.database import AWAY, Database
from idem.outbox.lane import Lane
from idem.outbox.outcomes import NotExecuted, Pending, Refused, Seen, Succeeded, failure, name
from idem.outbox.providers import nobody
from idem.outbox.reports import Report
from idem.outbox.settings import WorkerSettings
from idem.outbox.settler import Settler
from idem.outbox.terms import Terms


@dataclass(frozen=True, slots=True)
class Desk:
    """What the lanes of one worker share."""

    database: Database
    settler: Settler
    renderer: Renderer
    life: Life
    settings: WorkerSettings


class InFlight:
    """A claim in this process. "Started" and "given back" are one compare-and-set: only one of them acts."""

    def __init__(self, claimed: Claimed, terms: Terms) -> None:
        self.claimed = claimed
        self.terms = terms
        self.state: Literal["held", "started", "given_back"] = "held"

    def start(self) -> bool:
        """Taken by the last check before the first byte; False if the claim was given back."""
        if self.state == "held":
            self.state = "started"
        return self.state == "started"

    def give_back(self) -> bool:
        """Taken by the shutdown; False if the call has begun."""
        if self.state == "held":
            self.state = "given_back"
            return True
        return False


class LaneWorker:
    """One lane of a worker: claims only what it can start now."""

    def __init__(self, desk: Desk, name: LaneName, lane: Lane, terms: Mapping[str, Terms]) -> None:
        self._desk = desk
        self.name = name
        self.lane = lane
        self._terms = terms
        self._tasks: dict[asyncio.Task[None], InFlight] = {}
        self._recovering: set[asyncio.Task[None]] = set()
        self._slot_free = asyncio.Event()
        self._trouble = Trouble(f"worker {name.provider}/{name.account}")

    async def run(self, stop: asyncio.Event, woken: asyncio.Event) -> None:
        """Claim and start calls until `stop`."""
        settings = self._desk.settings
        quick = 0
        while not stop.is_set():
            self._slot_free.clear()
            limit = self._room()
            if limit <= 0:
                await wait(self._slot_free, 0.05 if self.lane.free else settings.poll)
                continue
            try:
                rows = await self._claim(limit)
                self._trouble.over()
                self._desk.life.passed = True
                telemetry.passed("worker")
            except AWAY as error:
                await self._trouble.away(error, stop)
                continue
            except Exception as error:  # one lane must never end the others, nor the results that wait to be settled
                telemetry.broken("worker", error, f"claiming for {self.name.provider}/{self.name.account}")
                await wait(stop, BROKEN_WAIT)
                continue
            for row in rows:
                self._start(row)
            if len(rows) >= limit:
                continue
            # A hint may come just before its commit can be seen: look again soon, then fall back to polling.
            quick = 2 if woken.is_set() else max(0, quick - 1)
            woken.clear()
            await self._rest(stop, woken, 0.03 if quick else settings.poll)

    async def once(self) -> int:
        """Claim what is due now and make the calls; how many."""
        limit = self._room()
        rows = await self._claim(limit) if limit > 0 else []
        for row in rows:
            self._start(row)
        await self.finish()
        return len(rows)

    async def finish(self) -> None:
        """Wait for the calls that run, and for lost claims to be found and given back."""
        if running := [*self._tasks, *self._recovering]:
            await asyncio.wait(running)

    def give_back(self) -> None:
        """Give back every claim whose call has not begun."""
        for task, flight in list(self._tasks.items()):
            if flight.give_back():
                note = Seen(note="given back at shutdown")
                self._desk.settler.put(Report(flight.claimed.row, NotExecuted("given_back"), note, flight.terms))
                task.cancel()

    def _room(self) -> int:
        # A slot is taken only when its task has run; until then the claims made for it are counted here.
        free = self.lane.slots - len(self._tasks)
        return min(self._desk.settings.batch, free, self.lane.room())

    async def _rest(self, stop: asyncio.Event, woken: asyncio.Event, seconds: float) -> None:
        events = [asyncio.ensure_future(event.wait()) for event in (stop, woken)]
        try:
            await asyncio.wait(events, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in events:
                waiting.cancel()

    async def _claim(self, limit: int) -> list[Claimed]:
        desk = self._desk
        token = claims.new_token()
        backend: int | None = None
        desk.settler.hold(token)
        try:
            async with desk.database.connection() as connection:
                backend = connection.info.backend_pid
                now = clock.boottime()
                rows = await claims.claim(
                    connection,
                    self.name,
                    token=token,
                    holder=desk.life.id,
                    lease=desk.settings.lease,
                    limit=limit,
                    now=now,
                )
        except AWAY:
            if backend is not None:
                task = asyncio.create_task(self._recover(token, backend))
                self._recovering.add(task)
                task.add_done_callback(self._recovering.discard)
            else:
                desk.settler.let_go(token)
            raise
        except Exception:
            # The database said no: nothing was claimed.
            desk.settler.let_go(token)
            raise
        for _ in rows:
            desk.settler.hold(token)
        desk.settler.let_go(token)
        if rows:
            telemetry.claimed(self.name.provider, self.name.account, len(rows))
        for claimed in rows:
            telemetry.taken(claimed.row.operation, claimed.row.intent_id, claimed.row.attempt)
        return rows

    def _start(self, claimed: Claimed) -> None:
        flight = InFlight(claimed, self._terms[claimed.row.operation])
        task = asyncio.create_task(self._call(flight))
        self._tasks[task] = flight
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        flight = self._tasks.pop(task)
        self._slot_free.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            telemetry.broken("worker", error, f"calling for {flight.claimed.row.intent_id}")
            self._desk.settler.let_go(flight.claimed.row.token)

    async def _call(self, flight: InFlight) -> None:
        claimed, row = flight.claimed, flight.claimed.row

        async def mark_start() -> bool:
            needed = flight.terms.contract.deadline + self._desk.settings.margin
            async with self._desk.database.connection() as connection:
                return await claims.mark_start(connection, row, needed=needed)

        outcome, seen = await self.lane.send(
            row.id,
            claimed.request,
            lease_ends=claimed.lease_ends,
            start=flight.start,
            mark_start=mark_start if claimed.marks_start else None,
        )
        if flight.state == "given_back":
            return
        telemetry.called(
            row.provider, row.account, row.intent_id, row.attempt, name(outcome), seen.elapsed, failure(outcome, seen)
        )
        told = Rendered()
        if isinstance(outcome, Succeeded | Refused | Pending):
            told = await self._desk.renderer.render(flight.terms.operation, outcome, row.intent_id)
        self._desk.settler.put(Report(row, outcome, seen, flight.terms, told.answer, told.letter, told.interim))

    async def _recover(self, token: UUID, backend: int) -> None:
        desk = self._desk
        patience = desk.database.timeouts.statement
        rows = await claims.recover_lost_claim(desk.database, self.name, token, backend=backend, patience=patience)
        for row in rows:
            desk.settler.hold(token)
            note = Seen(note="given back: the answer to the claim was lost")
            desk.settler.put(Report(row, NotExecuted("given_back"), note, self._terms[row.operation]))
        desk.settler.let_go(token)


def lane_names(catalogue: Catalogue) -> dict[tuple[str, str], tuple[LaneName, dict[str, Terms]]]:
    """The lanes of a configuration: one for each (provider, account) that an operation uses, nobody's left out."""
    lanes: dict[tuple[str, str], tuple[LaneName, dict[str, Terms]]] = {}
    for operation in catalogue.operations.values():
        if operation.provider == nobody.NAME:
            continue
        contract = catalogue.providers[operation.provider].contract
        key = (operation.provider, operation.account)
        terms = {**(lanes[key][1] if key in lanes else {}), operation.name: Terms(contract, operation)}
        lane = LaneName(
            provider=operation.provider,
            account=operation.account,
            origin=catalogue.providers[operation.provider].accounts[operation.account].origin,
            environment=catalogue.environment,
            operations=tuple(sorted(terms)),
            concurrency=contract.concurrency,
        )
        lanes[key] = (lane, terms)
    return lanes
