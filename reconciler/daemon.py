"""The reconciler as a daemon: one series of passes a lane, so that a slow provider holds up no other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings
from idem.outbox.daemon import fleet
from idem.outbox.daemon.schedule import Over, Passes, never
from idem.outbox.daemon.shared_poll import SharedPoll
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.settle.change_pages import walk
from idem.outbox.settle.expired_leases import sweep_expired
from idem.reconciler import due, exhausted, stored
from idem.reconciler.due_work import EVENTS, PROOFS, REDRIVES, due_work, of_lane
from idem.reconciler.lane import LaneReconciler, ReconcilerContext
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


class Reconciler:
    """All lanes of one process. `run_once` does one pass, `run` schedules them until it is stopped.

    `slots` calls at once a lane; `margin` (seconds) is kept free between a call's deadline and its claim's lease.
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
        for (provider, account), (lane_name, terms) in lane_scopes(catalogue).items():
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
        batch = self.context.settings.batch
        async with self.context.database.connection() as connection:
            return await walk(
                lambda place: sweep_expired(connection, self.catalogue, batch=batch, place=place, by="reconciler")
            )

    async def check_accounts(self, *, store: bool = True) -> None:
        """Ask, once for each lane, whose account its credentials are. `store`: False writes nothing."""
        await asyncio.gather(*(lane.account.once(store=store) for lane in self.lanes))

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop`; questions that run are finished."""
        passes = Passes(self.context.life, self.context.settings.interval, stop)
        polled = SharedPoll(
            self.context.database,
            lambda connection: due_work(connection, [lane.name for lane in self.lanes]),
            self.context.settings.interval,
        )

        def if_any(
            kind: str, work: Callable[[], Awaitable[object]], always: Callable[[], bool] = never
        ) -> Callable[[], Awaitable[None]]:
            async def one_pass() -> None:
                if await polled.finds(kind) or always():
                    await work()

            return one_pass

        passes.add(PROOFS, if_any(PROOFS, partial(self._apply, stop.is_set)))
        passes.add(EVENTS, if_any(EVENTS, partial(self._look_again, stop.is_set)))
        passes.add(REDRIVES, if_any(REDRIVES, self._redrive))
        passes.add("schedules", partial(self._open_entries, stop.is_set), SCHEDULES_INTERVAL)
        for lane in self.lanes:
            work = if_any(of_lane("claim", lane.name), partial(lane.start_all, stop), lane.has_news)
            passes.add("claim", work, provider=lane.name.provider, account=lane.name.account)
        for hints in self.hints:
            name = hints.lane_name
            work = if_any(of_lane("events", name), partial(hints.start_all, stop))
            passes.add("events", work, provider=name.provider, account=name.account)
        # The heartbeat continues until nothing of this process can act any more.
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
        batch = self.context.settings.batch
        async with self.context.database.connection() as connection:
            for lane in self.lanes:
                await walk(partial(exhausted.open_entries, connection, self.catalogue, lane.name, batch), over)

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
