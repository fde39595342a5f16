"""The reconciler as a daemon: one series of passes a lane, so that a slow provider holds up no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from idem.outbox import clock, telemetry
from idem.outbox.answers import Renderer
from idem.outbox.catalogue import Catalogue
from idem.outbox.claim import LaneName, new_token
from idem.outbox.daemon import Holds, Life
from idem.outbox.database import AWAY, Database
from idem.outbox.lane import Lane
from idem.outbox.lane_worker import lane_names
from idem.outbox.outcomes import name
from idem.outbox.passes import Passes
from idem.outbox.settings import ReconcilerSettings
from idem.outbox.terms import Terms
from idem.reconciler import asking, due, stored
from idem.reconciler.control import ControlQuestion
from idem.reconciler.due import Taken
from idem.reconciler.webhooks import again


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did: rows asked about by what became of them, proofs and waiting events applied, redrives."""

    asked: Mapping[str, int] = field(default_factory=dict)
    settled: Mapping[str, int] = field(default_factory=dict)
    applied: int = 0
    events: int = 0
    redriven: int = 0


class Desk:
    """What the lanes of one reconciler share. `held` counts the rows of each take that may still be acted upon."""

    def __init__(self, database: Database, settings: ReconcilerSettings, slots: int) -> None:
        self.database = database
        self.settings = settings
        self.slots = slots
        self.renderer = Renderer()
        self.life = Life("reconciler")
        self.held = Holds()
        self.life.tokens = lambda: list(self.held)
        self.asked: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()


class LaneReconciler:
    """One lane: the same limits, breaker, last check and deadline as a worker's calls."""

    def __init__(self, desk: Desk, lane_name: LaneName, lane: Lane, terms: Mapping[str, Terms]) -> None:
        self._desk = desk
        self.name = lane_name
        self.lane = lane
        self._terms = terms
        self._control = ControlQuestion(desk.database, lane_name, lane)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closings = 0

    async def start(self) -> int:
        """Take what is due, as far as slots are free, and begin to ask; how many rows."""
        desk = self._desk
        limit = min(desk.settings.batch, desk.slots - len(self._tasks), self.lane.room())
        if limit <= 0:
            return 0
        token = new_token()
        desk.held.hold(token)
        try:
            async with desk.database.connection() as connection:
                if self.lane.breaker.closings > self._closings:
                    # The provider is back: what waited for it is due, at the pace of this lane's few slots.
                    await due.hasten_lane(connection, self.name)
                    self._closings = self.lane.breaker.closings
                rows = await due.take(
                    connection,
                    self.name,
                    self.lane.provider.contract,
                    token=token,
                    holder=desk.life.id,
                    lease=desk.settings.lease,
                    limit=limit,
                    now=clock.boottime(),
                )
        finally:
            desk.held.let_go(token)
        for row in rows:
            desk.held.hold(token)
            task = asyncio.create_task(self._settle(row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(rows)

    async def start_all(self) -> None:
        """Take until nothing is due or every slot is busy."""
        while await self.start():
            pass

    async def finish(self) -> None:
        """Wait for the questions that run."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _settle(self, taken: Taken) -> None:
        desk, terms = self._desk, self._terms[taken.operation]
        try:
            found = await asking.ask(self.lane, self._control, taken)
            how, look = (found.how, name(found.look)) if found else ("look", "not_askable")
            telemetry.looked(self.name.provider, self.name.account, taken.intent_id, how, look)
            became, change = await asking.settle(desk.database, desk.renderer, taken, found, terms)
            desk.asked[became] += 1
            if change is not None and change.status is not taken.status:
                desk.settled[f"{how}:{look}"] += 1
        except Exception as error:  # one row must never stop the others: its take runs out, and it is asked about again
            desk.asked["broken"] += 1
            telemetry.look_failed(self.name.provider, self.name.account)
            if not isinstance(error, AWAY):
                telemetry.broken("reconciler", error, f"asking about {taken.intent_id}")
        finally:
            desk.held.let_go(taken.token)


class Reconciler:
    """All lanes of one process. `run_once` does one pass, `run` schedules them until it is stopped.

    `slots` calls at once a lane; `margin` (seconds) is kept free between a call's deadline and its take's lease.
    """

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        settings: ReconcilerSettings | None = None,
        *,
        slots: int = 4,
        margin: float = 5.0,
    ) -> None:
        self.catalogue = catalogue
        self.desk = Desk(database, settings or ReconcilerSettings(), slots)
        self.lanes: list[LaneReconciler] = []
        for (provider, account), (lane_name, terms) in lane_names(catalogue).items():
            known = catalogue.providers[provider]
            lane = Lane(known, known.accounts[account], slots=slots, margin=margin)
            self.lanes.append(LaneReconciler(self.desk, lane_name, lane, terms))

    async def run_once(self, *, hasten: bool = False, since: datetime | None = None) -> Pass:
        """One pass: stored proofs, waiting events, every due row of every lane, due redrives.

        `hasten` makes all unknown and awaiting rows due now (of intents since a time, if given). Raises what an
        unreachable database raises.
        """
        desk = self.desk
        desk.asked.clear()
        desk.settled.clear()
        if hasten or since is not None:
            async with desk.database.connection() as connection:
                await due.hasten(connection, since=since)
        applied, events = await self._apply(), await self._look_again()
        for lane in self.lanes:
            while await lane.start():
                await lane.finish()
        return Pass(dict(desk.asked), dict(desk.settled), applied, events, await self._redrive())

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop`; questions that run are finished."""
        passes = Passes("reconciler", self.desk.settings.interval, stop)
        passes.add("stored proofs", self._apply)
        passes.add("waiting events", self._look_again)
        passes.add("redrives", self._redrive)
        for lane in self.lanes:
            passes.add(f"{lane.name.provider}/{lane.name.account}", lane.start_all)
        # It is a sign of life until nothing of this process can act any more.
        ended = asyncio.Event()
        living = asyncio.create_task(self.desk.life.run(self.desk.database, ended))
        await passes.run(self.desk.life)
        await asyncio.gather(*(lane.finish() for lane in self.lanes))
        ended.set()
        await living
        await self.desk.life.end(self.desk.database)
        await self.close()

    async def close(self) -> None:
        """Close clients and threads; the database is the caller's."""
        for lane in self.lanes:
            await lane.lane.close()
        self.desk.renderer.close()

    async def _apply(self) -> int:
        async with self.desk.database.connection() as connection:
            return await stored.apply_stored(connection, self.catalogue, limit=self.desk.settings.batch)

    async def _look_again(self) -> int:
        desk = self.desk
        return await again.look_again(desk.database, self.catalogue, desk.renderer, limit=desk.settings.batch)

    async def _redrive(self) -> int:
        async with self.desk.database.connection() as connection:
            return await stored.redrive(connection, self.catalogue, limit=self.desk.settings.batch)
