"""The settler: takes reports from many calls and settles them in batches, however often the database goes away."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

from idem.outbox import reports, telemetry
from idem.outbox.daemon import Holds, Trouble
from idem.outbox.database import AWAY, Database
from idem.outbox.outcomes import name
from idem.outbox.reports import Report


class Settler:
    """Flushes when `batch` reports are there or `flush` seconds after the first, whichever comes first.

    `held` counts the rows of each claim token that this process may still act upon or has yet to report.
    """

    def __init__(self, database: Database, *, batch: int = 100, flush: float = 0.005) -> None:
        self._database = database
        self._batch = batch
        self._flush = flush
        self._queue: asyncio.Queue[Report] = asyncio.Queue()
        self._trouble = Trouble("settler")
        self._stop = asyncio.Event()
        self.held = Holds()
        self.fates: Counter[str] = Counter()
        self._told: dict[tuple[str, str], asyncio.Event] = {}

    def subscribe(self, provider: str, account: str) -> asyncio.Event:
        """An event that is set whenever something of this lane was settled, so that its fleet has room again."""
        return self._told.setdefault((provider, account), asyncio.Event())

    def hold(self, token: UUID | None) -> None:
        """A row of this token was claimed."""
        if token is not None:
            self.held.hold(token)

    def put(self, report: Report) -> None:
        """Settle this report soon."""
        self._queue.put_nowait(report)

    async def run(self) -> None:
        """Settle until cancelled; `drain` first."""
        while True:
            batch = [await self._queue.get()]
            until = asyncio.get_running_loop().time() + self._flush
            while len(batch) < self._batch:
                left = until - asyncio.get_running_loop().time()
                try:
                    batch.append(
                        self._queue.get_nowait() if left <= 0 else await asyncio.wait_for(self._queue.get(), left)
                    )
                except (TimeoutError, asyncio.QueueEmpty):
                    break
            await self._settle(batch)
            for lane in {(report.row.provider, report.row.account) for report in batch} & self._told.keys():
                self._told[lane].set()
            for _ in batch:
                self._queue.task_done()

    async def drain(self) -> None:
        """Wait until all that was put is settled."""
        await self._queue.join()

    async def _settle(self, batch: list[Report]) -> None:
        while True:
            try:
                async with self._database.connection() as connection:
                    fates = await reports.settle(connection, batch)
                break
            except AWAY as error:
                await self._trouble.away(error, self._stop)
            except Exception as error:  # one row must never stop the others: it is left to its lease and the sweeper
                if len(batch) > 1:
                    for report in batch:
                        await self._settle([report])
                    return
                telemetry.broken("worker", error, f"settling {batch[0].row.intent_id}")
                self.let_go(batch[0].row.token)
                return
        self._trouble.over()
        for report in batch:
            fate = fates.get(report.row.id, "late")
            self.fates[fate] += 1
            telemetry.reported(report.row.intent_id, report.row.attempt, name(report.outcome), fate)
            self.let_go(report.row.token)

    def let_go(self, token: UUID | None) -> None:
        """This process will not act upon a row of this token any more."""
        if token is not None:
            self.held.let_go(token)
