"""The worker: claims due rows, makes the calls, reports what it saw. `run` loops, `run_once` does one pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from idem.outbox.calls.breaker import BreakerState
from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon import fleet
from idem.outbox.daemon.daemon import Life
from idem.outbox.daemon.listener import Listener
from idem.outbox.database.channel import lane_of
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.handlers.fan_out import keep_expanding
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.settler import Settler
from idem.outbox.values import clock
from idem.outbox.worker.freezing import Freezer
from idem.outbox.worker.idle_poll import IdlePoll
from idem.outbox.worker.lane_worker import LaneWorker, WorkerContext
from idem.outbox.worker.start_marks import StartMarks

if TYPE_CHECKING:
    from idem.outbox.handlers.runner import HandlerRunner
    from idem.outbox.worker.local_steps import LocalSteps


@dataclass(frozen=True, slots=True)
class WorkerPass:
    """What one pass did."""

    claimed: int
    fates: Mapping[str, int]
    handled: int = 0
    """Events that handlers have handled."""


class Worker:
    """All lanes of one process. Never holds a transaction open during a call."""

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        settings: WorkerSettings | None = None,
        handlers: HandlerRunner | None = None,
    ) -> None:
        self.database = database
        self._handlers = handlers
        self.settings = settings or WorkerSettings()
        self.life = Life("worker")
        self.settler = Settler(database, batch=self.settings.batch, flush=self.settings.flush)
        self.life.tokens = self.settler.held.tokens
        self._renderer = Renderer()
        self._idle = IdlePoll(database, self.settings.poll)
        self._freezer = Freezer(database, catalogue)
        self._local_steps = _local_steps(database, catalogue)
        context = WorkerContext(
            database, self.settler, self._renderer, self.life, self.settings, StartMarks(database), self._idle
        )
        self.lanes = []
        for (provider, account), (lane_name, terms) in lane_scopes(catalogue).items():
            known = catalogue.providers[provider]
            pacer = fleet.paced(known.contract.limits, "worker", self.life.census)
            lane = Lane(
                known, known.accounts[account], slots=self.settings.slots, margin=self.settings.margin, pacer=pacer
            )
            self.lanes.append(LaneWorker(context, lane_name, lane, terms))
        self.life.breakers = self._open_breakers

    def _open_breakers(self) -> list[str]:
        now = clock.boottime()
        return [
            f"{each.name.provider}/{each.name.account}"
            for each in self.lanes
            if each.lane.breaker.state(now) is not BreakerState.CLOSED
        ]

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then give back what has not begun, finish what runs, settle, and end cleanly."""
        listener = Listener(self.database)
        listening = asyncio.create_task(listener.run(stop))
        hastening = asyncio.create_task(self.database.hasten_after(stop))
        # It is a heartbeat until nothing of this process can act any more.
        ended = asyncio.Event()
        living = asyncio.create_task(self.life.run(self.database, ended))
        settling = asyncio.create_task(self.settler.run())
        handling = asyncio.create_task(
            keep_expanding(self.database, stop, self.life.passes)
            if self._handlers is None
            else self._handlers.run(stop, self.life.passes, self.settler.settled)
        )
        checking = [asyncio.create_task(lane.account.run(stop)) for lane in self.lanes]
        woken = [listener.subscribe(lane_of(each.name.provider, each.name.account)) for each in self.lanes]

        # What settles a step of a flow begins the next one.
        unfrozen, local = listener.subscribe(), listener.subscribe()
        self.settler.on_step(unfrozen)
        self.settler.on_step(local)

        def rendered() -> None:
            for event in (*woken, local):
                event.set()

        def begun() -> None:
            unfrozen.set()
            self.settler.settled.set()

        due = self.life.passes.expect("freezing", self.settings.poll)
        freezing = self._freezer.run(stop, unfrozen, due, rendered, self._idle)
        running = asyncio.create_task(self._run_local_steps(stop, local, begun))
        await asyncio.gather(freezing, *(lane.run(stop, event) for lane, event in zip(self.lanes, woken, strict=True)))
        self.life.passes.end()
        # It would wait for its next probe, and no lane claims any more.
        listening.cancel()
        for check in checking:
            check.cancel()
        for lane in self.lanes:
            lane.give_back()
        await asyncio.gather(*(lane.finish() for lane in self.lanes))
        # While the database is away nothing can be reported; after the lease the sweeper does it, by what it can see.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settler.drain(), self.settings.lease)
        settling.cancel()
        await running
        await handling
        ended.set()
        hastening.cancel()
        await asyncio.gather(hastening, listening, living, settling, *checking, return_exceptions=True)
        if not any(lane.left_running for lane in self.lanes):
            await self.life.end(self.database)
        await self.close()

    async def run_once(self) -> WorkerPass:
        """One pass: run local steps, render what has no request yet; over all lanes claim, call, settle; then run the
        handlers."""
        await self._freezer.once()
        if self._local_steps is not None and await self._local_steps.once():
            await self._freezer.once()
        settling = asyncio.create_task(self.settler.run())
        before = dict(self.settler.fates)
        try:
            claimed = sum(await asyncio.gather(*(lane.once() for lane in self.lanes)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.settler.drain(), self.settings.lease)
        finally:
            settling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await settling
        fates = {fate: n - before.get(fate, 0) for fate, n in self.settler.fates.items() if n > before.get(fate, 0)}
        return WorkerPass(claimed, fates, await self._handlers.run_once() if self._handlers is not None else 0)

    async def close(self) -> None:
        """Close clients and threads; the database is the caller's."""
        for lane in self.lanes:
            await lane.lane.close()
        if self._local_steps is not None:
            await self._local_steps.close()
        if self._handlers is not None:
            await self._handlers.close()

    async def _run_local_steps(self, stop: asyncio.Event, woken: asyncio.Event, begun: Callable[[], None]) -> None:
        if self._local_steps is not None:
            due = self.life.passes.expect("local steps", self.settings.poll)
            await self._local_steps.run(stop, woken, due, begun)


def _local_steps(database: Database, catalogue: Catalogue) -> LocalSteps | None:
    if not any(True for operation in catalogue.operations.values() for _ in operation.local_steps):
        return None
    # This imports SQLAlchemy, which no other part of a worker needs.
    from idem.outbox.worker.local_steps import LocalSteps

    return LocalSteps(database, catalogue)
