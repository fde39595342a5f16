"""idem's daemons for tests: one pass at a time, or all at once until they are stopped."""

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from idem.outbox.calls.lane import Lane
from idem.outbox.config.settings import ReconcilerSettings, SweeperSettings, WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.handlers.handler import Handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.claim import Claim
from idem.outbox.worker.worker import Worker, WorkerPass
from idem.reconciler.daemon import Reconciler, ReconcilerPass
from idem.sweeper.daemon import Sweeper, SweepResult

MARGIN: Final = 1.0
"""Seconds between a call's deadline and the end of its lease; short, because these daemons have no other load."""


class Daemons:
    """A new daemon makes each pass, so that no open breaker of an earlier one delays it.

    `lease`: seconds for which a claim is held, a worker's or a reconciler's.
    """

    def __init__(self, database: Database, catalogue: Catalogue, handlers: Mapping[str, Handler]) -> None:
        self._database = database
        self._catalogue = catalogue
        self._handlers = handlers
        deadline = max((each.contract.deadline for each in catalogue.providers.values()), default=0.0)
        self.lease = 2 * (deadline + MARGIN) + 10
        self._worker_settings = WorkerSettings(lease=self.lease, margin=MARGIN, slots=8, poll=0.05)
        self._reconciler_settings = ReconcilerSettings(lease=self.lease, interval=0.1)

    async def work(self) -> WorkerPass:
        """One pass of a worker: render, claim what is due, make the calls, settle."""
        worker = Worker(self._database, self._catalogue, self._worker_settings)
        try:
            return await worker.run_once()
        finally:
            await worker.close()

    async def sweep(self) -> SweepResult:
        """One pass of the sweeper: leases, queued rows, keys, history."""
        return await Sweeper(self._database, self._catalogue).run_once()

    async def reconcile(self, *, now: bool) -> ReconcilerPass:
        """One pass of the reconciler over what is due; with `now` over everything unknown or awaiting."""
        reconciler = Reconciler(self._database, self._catalogue, self._reconciler_settings, margin=MARGIN)
        try:
            return await reconciler.run_once(hasten=now)
        finally:
            await reconciler.close()

    async def run_handlers(self) -> int:
        """Run the handlers that are due; returns how many events they handled."""
        runner = HandlerRunner(self._database.address, self._handlers)
        try:
            return await runner.run_once()
        finally:
            await runner.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Run all daemons at once, until `stop`."""
        daemons = [
            Worker(self._database, self._catalogue, self._worker_settings).run(stop),
            Sweeper(self._database, self._catalogue, SweeperSettings(interval=0.1)).run(stop),
            Reconciler(self._database, self._catalogue, self._reconciler_settings, margin=MARGIN).run(stop),
        ]
        if self._handlers:
            daemons.append(HandlerRunner(self._database.address, self._handlers, poll=0.05).run(stop))
        await asyncio.gather(*daemons)

    async def claim_and_die(self, *, after_the_call: bool) -> bool:
        """Claim the next due row and report nothing, after the call or without one; returns whether a row was due."""
        for (provider, account), (lane_name, _) in lane_scopes(self._catalogue).items():
            now = clock.boottime()
            async with self._database.connection() as connection:
                rows = await claims.claim(
                    connection, lane_name, token=uuid4(), holder="killed", lease=self.lease, limit=1, now=now
                )
            if rows:
                if after_the_call:
                    await self._call(provider, account, rows[0])
                return True
        return False

    async def _call(self, name: str, account: str, claimed: Claim) -> None:
        provider = self._catalogue.providers[name]

        async def mark() -> bool:
            needed = provider.contract.deadline + MARGIN
            async with self._database.connection() as connection:
                return await claims.mark_start(connection, claimed.row, needed=needed)

        lane = Lane(provider, provider.accounts[account], slots=1, margin=MARGIN)
        try:
            await lane.send(
                claimed.row.id,
                claimed.request,
                lease_ends=claimed.lease_ends,
                start=lambda: True,
                mark_start=mark if claimed.row.marks_start else None,
            )
        finally:
            await lane.close()
