"""The reconciler as a daemon: one series of passes a lane, so that a slow provider holds up no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.daemon import fleet
from idem.outbox.daemon.daemon import Holds, Life
from idem.outbox.daemon.schedule import Over, Passes, never
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_names import LaneName, lane_names
from idem.outbox.domain.outcomes import name
from idem.outbox.domain.sending import StillSending
from idem.outbox.domain.terms import Terms
from idem.outbox.observe import telemetry
from idem.outbox.providers import tracing
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.settle.pages import Place
from idem.outbox.settle.rendering import Renderer
from idem.outbox.values import clock
from idem.outbox.worker.account_check import AccountWatch
from idem.outbox.worker.claim import new_token
from idem.outbox.worker.sent_as import Sender
from idem.reconciler import due, exhausted, settling, stored, strategies
from idem.reconciler.control_question import ControlQuestion
from idem.reconciler.lookup_claim import LookupClaim
from idem.reconciler.lookups import Asker
from idem.reconciler.pump import Slots
from idem.reconciler.quiet_time import QuietTimes
from idem.reconciler.webhooks import retries
from idem.reconciler.webhooks.fetching import Hints

SCHEDULES_INTERVAL = 60.0
"""Seconds between two polls for rows whose look-ups are used up by the schedule as it is configured now."""


@dataclass(frozen=True, slots=True)
class ReconcilerPass:
    """What one pass did: rows asked about by what became of them, proofs and waiting events applied, redrives."""

    asked: Mapping[str, int] = field(default_factory=dict)
    settled: Mapping[str, int] = field(default_factory=dict)
    applied: int = 0
    events: int = 0
    redriven: int = 0


class ReconcilerContext:
    """What the lanes of one reconciler share. `held` counts the rows of each take that may still be acted upon."""

    def __init__(self, database: Database, settings: ReconcilerSettings, slots: int) -> None:
        self.database = database
        self.settings = settings
        self.slots = slots
        self.renderer = Renderer()
        self.life = Life("reconciler")
        self.held = Holds()
        self.left_running = False
        """A replay that nobody can end was still running when its take was over: its end is not on record."""
        self.life.tokens = self.held.tokens
        self.asked: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()


class LaneReconciler:
    """One lane: the same limits, breaker, last check and deadline as a worker's calls."""

    def __init__(self, context: ReconcilerContext, lane_name: LaneName, lane: Lane, terms: Mapping[str, Terms]) -> None:
        self._context = context
        self.name = lane_name
        self.lane = lane
        self._terms = terms
        self.account = AccountWatch(context.database, lane_name, lane, context.life.id, careful=True)
        self._sender = Sender(lane.provider, self.account)
        self._control = ControlQuestion(context.database, lane_name, lane, self._sender)
        self._asker = Asker(context.database, lane, self._control, self._sender)
        self._quiet = QuietTimes(lane_name, lane.provider.contract, context.settings.lease)
        self._slots = Slots(lane)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closings = 0

    async def start(self) -> int:
        """Take what is due, as far as slots are free, and begin to ask; how many rows."""
        context = self._context
        limit = min(context.settings.batch, self._slots.room(len(self._tasks)))
        if limit <= 0:
            return 0
        if not await self.account.holds():
            return 0
        token = new_token()
        context.held.hold(token)
        try:
            async with context.database.connection() as connection:
                sent_as = await self._sender.ready(connection)
                if self.lane.breaker.closings > self._closings:
                    # The provider is back: what waited for it is due, at the pace of this lane's few slots.
                    await due.hasten_lane(connection, self.name)
                    self._closings = self.lane.breaker.closings
                await self._quiet.keep(connection, context.life.leap, clock.boottime())
                rows = await due.take(
                    connection,
                    self.name,
                    self.lane.provider.contract,
                    token=token,
                    holder=context.life.id,
                    beats=context.life.beats,
                    table=context.life.table,
                    lease=context.settings.lease,
                    limit=limit,
                    now=clock.boottime(),
                    replay_first=strategies.replay_first(self.lane.provider.contract),
                    sent_as=sent_as,
                    senders=self._sender.same(),
                )
        finally:
            context.held.let_go(token)
        for row in rows:
            context.held.hold(token)
            task = asyncio.create_task(self._traced(row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(rows)

    async def pace(self) -> bool:
        """Wait for the next token of this lane's rate; False if it was not the rate that held it up."""
        seconds = self.lane.pacer.wait(clock.boottime())
        await asyncio.sleep(seconds)
        return seconds > 0

    async def start_all(self, stop: asyncio.Event) -> None:
        """Take until nothing is due, until `stop`, or until the next pass is."""
        await self._slots.take_all(self.start, self._tasks, stop=stop, seconds=self._context.settings.interval)

    async def finish(self) -> None:
        """Wait for the questions that run; for a replay that nobody can end, until its take is over at the most."""
        if self._tasks:
            patience = self._context.settings.lease if self.lane.endless else None
            _, running = await asyncio.wait(list(self._tasks), timeout=patience)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _traced(self, claim: LookupClaim) -> None:
        with tracing.of_row(claim.traceparent):
            await self._settle(claim)

    async def _settle(self, claim: LookupClaim) -> None:
        context, terms = self._context, self._terms[claim.row.operation]
        try:
            claim = self._control.judged(claim)
            found = await self._asker.ask(claim)
            how, look = (found.how, name(found.look)) if found else ("look", "not_askable")
            why = found.seen.why if found else None
            telemetry.looked_up(self.name.provider, self.name.account, claim.row.intent_id, how, look, why)
            became, change = await settling.settle(context.database, context.renderer, claim, found, terms)
            context.asked[became] += 1
            if change is not None and change.status is not claim.row.status:
                context.settled[f"{how}:{look}"] += 1
        except StillSending:
            # Its token stays held, so that no sign of life says that this process is done with it.
            context.held.hold(claim.row.token)
            context.left_running = True
        except Exception as error:  # one row must never stop the others: its take runs out, and it is asked about again
            context.asked["broken"] += 1
            telemetry.lookup_failed(self.name.provider, self.name.account)
            if not isinstance(error, (*AWAY, *REFUSED)):
                telemetry.broken("reconciler", error, f"asking about {claim.row.intent_id}")
        finally:
            context.held.let_go(claim.row.token)


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
        self.context = ReconcilerContext(database, settings or ReconcilerSettings(), slots)
        self.lanes: list[LaneReconciler] = []
        self.hints: list[Hints] = []
        for (provider, account), (lane_name, terms) in lane_names(catalogue).items():
            known = catalogue.providers[provider]
            pacer = fleet.paced(known.contract.limits, "reconciler", self.context.life.census)
            lane = Lane(known, known.accounts[account], slots=slots, margin=margin, pacer=pacer)
            self.lanes.append(LaneReconciler(self.context, lane_name, lane, terms))
            context = self.context
            self.hints.append(Hints(context.database, catalogue, context.renderer, lane_name, lane, context.settings))

    async def run_once(self, *, hasten: bool = False, since: datetime | None = None) -> ReconcilerPass:
        """One pass: stored proofs, waiting events, every due row of every lane, due redrives.

        `hasten` makes all unknown and awaiting rows due now (of intents since a time, if given). Raises what an
        unreachable database raises.
        """
        context = self.context
        await self.check_accounts()
        context.asked.clear()
        context.settled.clear()
        if hasten or since is not None:
            async with context.database.connection() as connection:
                await due.hasten(connection, since=since)
        await self._open_entries()
        applied, events = await self._apply(), await self._look_again()
        events += await self._fetch()
        for lane in self.lanes:
            while await lane.start() or await lane.pace():
                await lane.finish()
        return ReconcilerPass(dict(context.asked), dict(context.settled), applied, events, await self._redrive())

    async def sweep(self) -> int:
        """End every claim whose lease is over, as the sweeper does, so that its row can be asked about; how many."""
        swept, place = 0, Place()
        async with self.context.database.connection() as connection:
            while not place.over:
                swept += len(
                    await sweep_expired(connection, self.catalogue, batch=self.context.settings.batch, place=place)
                )
        if place.refused is not None:
            raise place.refused
        return swept

    async def check_accounts(self, *, store: bool = True) -> None:
        """Ask, once for each lane, whose account its credentials are. `store`: False writes nothing."""
        await asyncio.gather(*(lane.account.once(store=store) for lane in self.lanes))

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop`; questions that run are finished."""
        passes = Passes(self.context.life, self.context.settings.interval, stop)
        passes.add("stored proofs", partial(self._apply, stop.is_set))
        passes.add("waiting events", partial(self._look_again, stop.is_set))
        passes.add("redrives", self._redrive)
        passes.add("schedules", partial(self._open_entries, stop.is_set), SCHEDULES_INTERVAL)
        for lane in self.lanes:
            passes.add("take", partial(lane.start_all, stop), provider=lane.name.provider, account=lane.name.account)
        for hints in self.hints:
            passes.add(
                "events", partial(hints.start_all, stop), provider=hints.name.provider, account=hints.name.account
            )
        # It is a sign of life until nothing of this process can act any more.
        ended = asyncio.Event()
        living = asyncio.create_task(self.context.life.run(self.context.database, ended))
        checking = [asyncio.create_task(lane.account.run(stop)) for lane in self.lanes]
        hastening = asyncio.create_task(self.context.database.hasten_after(stop))
        await passes.run()
        for check in checking:
            check.cancel()
        await asyncio.gather(*checking, return_exceptions=True)
        await asyncio.gather(*(lane.finish() for lane in self.lanes), *(hints.finish() for hints in self.hints))
        ended.set()
        hastening.cancel()
        await living
        if not self.context.left_running:
            await self.context.life.end(self.context.database)
        await self.close()

    async def close(self) -> None:
        """Close clients and threads; the database is the caller's."""
        for lane in self.lanes:
            await lane.lane.close()

    async def _apply(self, over: Over = never) -> int:
        async with self.context.database.connection() as connection:
            return await stored.apply_stored(connection, self.catalogue, limit=self.context.settings.batch, over=over)

    async def _open_entries(self, over: Over = never) -> None:
        for lane in self.lanes:
            place = Place()
            async with self.context.database.connection() as connection:
                while not (place.over or over()):
                    await exhausted.open_entries(
                        connection, self.catalogue, lane.name, batch=self.context.settings.batch, place=place
                    )
            if place.refused is not None:
                raise place.refused

    async def _look_again(self, over: Over = never) -> int:
        context = self.context
        return await retries.look_again(
            context.database, self.catalogue, context.renderer, limit=context.settings.batch, over=over
        )

    async def _fetch(self) -> int:
        before = sum(hints.settled for hints in self.hints)
        for hints in self.hints:
            while await hints.start():
                await hints.finish()
        return sum(hints.settled for hints in self.hints) - before

    async def _redrive(self) -> int:
        async with self.context.database.connection() as connection:
            return await stored.redrive(connection, self.catalogue, limit=self.context.settings.batch)
