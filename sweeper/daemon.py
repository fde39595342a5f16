"""The sweeper as a daemon: short passes at fixed intervals, any number of sweepers at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.daemon.daemon import Life
from idem.outbox.daemon.schedule import Passes
from idem.outbox.daemon.shared_poll import SharedPoll
from idem.outbox.database.pool import REFUSED, Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.domain.transition import Change
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.operator import ages
from idem.outbox.recovery.quarantine import work_off
from idem.outbox.settle import clock_ahead
from idem.outbox.settle.change_pages import Place
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.settle.order import FIRST_KEY, KeyPlace
from idem.sweeper.doubted import end_doubted
from idem.sweeper.due_passes import due_passes
from idem.sweeper.history import HistoryWalk
from idem.sweeper.order import promote_waiting
from idem.sweeper.retention_steps import Retention, RetentionStep
from idem.sweeper.too_old import hold_too_old
from idem.sweeper.unasked import end_redrives, report_unasked

UNASKED_INTERVAL = 60.0
"""Seconds between two polls for rows that no daemon serves."""

RARELY = 5
"""Intervals between two polls for rows that no claim takes any more. They can wait: a client does not notice them."""

AGES_INTERVAL = 15.0
"""Seconds between two checks of how old everything unsettled is, for the metrics (P5)."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a pass did, in rows. `more`: its time was up before everything was done.

    `swept`: claims ended, of which `to_unknown`, `given_back` (proven not sent), `settled` (by a stored proof) and
    `held` (at rest, because it crashes workers). `too_old`: queued rows that came to rest, and redrives that were not
    made in time. `doubted`: rows that lost commits may have sent: listed ones that are doubted now, and those that may
    not be sent any more. `promoted`: rows that may be sent now, after others of their ordering key. `sent_ahead`: rows
    whose first send lies ahead of the database's clock, so that their true
    time is not known. `unasked`: rows that no reconciler has asked about for a day, each with a dead letter.
    `expired`: keys that lost their answer. `deleted`: tombstones. `abandoned`: rows at rest whose key has expired. The
    others are rows of history.
    """

    swept: int = 0
    to_unknown: int = 0
    given_back: int = 0
    settled: int = 0
    held: int = 0
    too_old: int = 0
    promoted: int = 0
    unasked: int = 0
    doubted: int = 0
    sent_ahead: int = 0
    expired: int = 0
    deleted: int = 0
    abandoned: int = 0
    evidence: int = 0
    events: int = 0
    requests: int = 0
    webhook_events: int = 0
    webhook_bodies: int = 0
    provider_answers: int = 0
    daemons: int = 0
    dead_letters: int = 0
    lane_changes: int = 0
    handler_work: int = 0
    tenant_hours: int = 0
    more: bool = False


CHANGES: Final[dict[str, tuple[str, Callable[..., Awaitable[list[Change]]]]]] = {
    "leases": ("swept", sweep_expired),
    "doubted": ("doubted", end_doubted),
    "queue": ("too_old", hold_too_old),
    "redrives": ("too_old", end_redrives),
    "unasked": ("unasked", report_unasked),
}
"""The rows that the sweeper changes, by kind: their count in `SweepResult`, and what changes a page of them."""


class Sweeper:
    """`run_once` does one pass of everything, `run` schedules passes until it is stopped."""

    def __init__(self, database: Database, catalogue: Catalogue, settings: SweeperSettings | None = None) -> None:
        self.database = database
        self.catalogue = catalogue
        self.settings = settings or SweeperSettings()
        self.life = Life("sweeper")
        self._walk = HistoryWalk()
        self._walked = 0.0
        self._waiting = 0

    async def run_once(self, *, within: float = 60.0) -> SweepResult:
        """One pass: leases, queued rows, keys, history; each in batches until nothing is left.

        No batch is begun after `within` seconds. Raises what an unreachable database raises.
        """
        until = asyncio.get_running_loop().time() + within
        done: Counter[str] = Counter()
        more = await self._change("leases", done, until)
        more |= await self._doubt(done, until)
        for kind in ("queue", "redrives", "unasked"):
            more |= await self._change(kind, done, until)
        more |= await self._promote(done, until)
        more |= await self._prune(done, until, walk=True)
        return SweepResult(**done, more=more)

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop`; a pass that runs is finished. An outage is waited out."""
        settings = self.settings
        passes = Passes(self.life, settings.interval, stop)
        polled = SharedPoll(self.database, due_passes, settings.interval)

        def add(kind: str, work: Callable[[Counter[str], float], Awaitable[bool]], interval: float) -> None:
            one_pass = self._timed(work, interval)

            async def if_any() -> None:
                if await polled.finds(kind):
                    await one_pass()
                elif kind == "doubted":
                    self._waiting = 0

            passes.add(kind, if_any, interval)

        add("leases", partial(self._change, "leases"), settings.interval)
        add("queue", partial(self._change, "queue"), settings.interval)
        add("order", self._promote, settings.interval)
        rarely = RARELY * settings.interval
        add("doubted", self._doubt, rarely)
        add("redrives", partial(self._change, "redrives"), rarely)
        report = partial(self._change, "unasked")
        passes.add("unasked", self._timed(report, UNASKED_INTERVAL), UNASKED_INTERVAL)
        passes.add("ages", self._report_ages, AGES_INTERVAL)
        passes.add("retention", self._timed(self._prune, settings.retention_interval), settings.retention_interval)
        living = asyncio.create_task(self.life.run(self.database, stop))
        hastening = asyncio.create_task(self.database.hasten_after(stop))
        await passes.run()
        await living
        hastening.cancel()
        await self.life.end(self.database)

    def _timed(self, work: Callable[[Counter[str], float], Awaitable[bool]], seconds: float) -> Callable[[], Any]:
        # A pass with more to do than fits ends when its interval does, and the next one follows at once.
        async def one_pass() -> None:
            await work(Counter(), asyncio.get_running_loop().time() + seconds)

        return one_pass

    @property
    def _lanes(self) -> list[tuple[str, str]]:
        return [(name, account) for name, each in self.catalogue.providers.items() for account in each.accounts]

    async def _report_ages(self) -> None:
        async with self.database.connection() as connection:
            await ages.report(connection, self._lanes, self.catalogue.memories)

    async def _change(self, kind: str, done: Counter[str], until: float) -> bool:
        """Change all rows of one kind, page by page; whether there are more."""
        place, (counted, change_page) = Place(), CHANGES[kind]

        async def page(connection: AsyncConnection[Any]) -> bool:
            changes = await change_page(connection, self.catalogue, batch=self.settings.batch, place=place)
            done[counted] += len(changes)
            if kind == "leases":
                done.update(_ended(change) for change in changes)
            return place.over

        return await self._repeat(page, until, place)

    async def _doubt(self, done: Counter[str], until: float) -> bool:
        async with self.database.connection() as connection:
            found = await work_off(connection, self.catalogue, until=until)
        done["doubted"] += found.unknown + found.left + found.open
        if (found.waiting and found.waiting != self._waiting) or found.unknown + found.left + found.open:
            daemon_events.rows_doubted(found.unknown, found.left, found.left_for, found.open, found.waiting)
        self._waiting = found.waiting
        # Before the time of a doubt is asked for: one that lies ahead is over.
        return await self._mark_ahead(done, until) | await self._change("doubted", done, until)

    async def _promote(self, done: Counter[str], until: float) -> bool:
        """What waits by an ordering key and is not blocked any more, key after key; whether there are more."""
        loop = asyncio.get_running_loop()
        place: KeyPlace | None = FIRST_KEY
        async with self.database.connection() as connection:
            while place is not None and loop.time() < until:
                promoted, place = await promote_waiting(connection, batch=self.settings.batch, after=place)
                done["promoted"] += promoted
        return place is not None

    async def _mark_ahead(self, done: Counter[str], until: float) -> bool:
        place, before = Place(), done["sent_ahead"]

        async def page(connection: AsyncConnection[Any]) -> bool:
            done["sent_ahead"] += await clock_ahead.mark(connection, batch=self.settings.batch, place=place)
            return place.over

        try:
            return await self._repeat(page, until, place)
        finally:
            daemon_events.sent_ahead(done["sent_ahead"] - before)

    async def _prune(self, done: Counter[str], until: float, *, walk: bool = False) -> bool:
        """All kinds in turn, a batch each, so that a flood of one kind does not keep the others waiting."""
        loop = asyncio.get_running_loop()
        walk = walk or not self._walk.over or loop.time() - self._walked >= self.settings.history_interval
        retention = Retention(self.catalogue, self.settings, done, self._walk)
        left = retention.steps(history_too=walk)
        if not walk:
            async with self.database.connection() as connection:
                due = await retention.due(connection)
            left = {kind: step for kind, step in left.items() if kind in due}
        before = Counter(done)
        try:
            while left and loop.time() < until:
                for kind, step in list(left.items()):
                    if await self._once(kind, step):
                        del left[kind]
        finally:
            if walk and self._walk.over:
                self._walked = loop.time()
            for what, rows in (done - before).items():
                telemetry.pruned(what, rows)
        return bool(left)

    async def _once(self, kind: str, step: RetentionStep) -> bool:
        async with self.database.connection() as connection:
            try:
                return await step(connection)
            except psycopg.Error as error:
                # A guard that refuses (a dead letter was opened just now), or a table that is broken, ends this kind
                # for this pass and no other. An outage is not this kind's fault.
                if connection.closed:
                    raise
                if isinstance(error, REFUSED):
                    daemon_events.left_locked(f"retention: {kind}")
                else:
                    telemetry.broken("sweeper", error, f"retention: {kind}")
                return True

    async def _repeat(self, page: RetentionStep, until: float, place: Place) -> bool:
        """Pages until there is none left or the time is up; whether there are more."""
        loop = asyncio.get_running_loop()
        async with self.database.connection() as connection:
            while not await page(connection) and loop.time() < until:
                pass
        if place.refused is not None:
            raise place.refused
        return not place.over


def _ended(change: Change) -> str:
    match change.status:
        case OutboxStatus.UNKNOWN:
            return "to_unknown"
        case OutboxStatus.PENDING:
            return "given_back"
        case OutboxStatus.HELD:
            return "held"
        case _:
            return "settled"
