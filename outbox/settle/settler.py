"""The settler: takes reports from many calls and settles them in batches, however often the database goes away."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from idem.outbox.daemon.daemon import Holds
from idem.outbox.daemon.retry import RetryLoop, wait
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.outcomes import name
from idem.outbox.observe import daemon_events, telemetry
from idem.outbox.settle import results
from idem.outbox.settle.report import Report
from idem.outbox.settle.results import ResultFate
from idem.outbox.values.backoff import backoff

IDLE: Final = 60.0
"""Seconds between two polls for reports that were put aside, where nothing says that there are any."""
FEW: Final = 4
"""After a batch of so few the next one waits for `flush` only; after a larger one for `fill`, to become a full one."""


@dataclass(slots=True, eq=False)
class _Aside:
    """A report that is settled by itself. `again`: when, on the loop's clock. `failures`: tries that found it held."""

    report: Report
    again: float = 0.0
    failures: int = 0


class Settler:
    """Settles when `batch` reports are there, or a moment after the first: `flush` seconds while there are few, `fill`
    while there are many. What comes while a batch is being written is in the next one.

    `held` counts the rows of each claim token that this process may still act upon or has yet to report.
    """

    def __init__(self, database: Database, *, batch: int = 100, flush: float = 0.002, fill: float = 0.02) -> None:
        self._database = database
        self._batch = batch
        self._flush = flush
        self._fill = fill
        self._reports: list[Report] = []
        self._first = asyncio.Event()
        self._full = asyncio.Event()
        self._unsettled = 0
        self._all_settled = asyncio.Event()
        self._all_settled.set()
        self._retry = RetryLoop("settler")
        self._aside_retry = RetryLoop("settler")
        self._aside: list[_Aside] = []
        self._more = asyncio.Event()
        self._last = False
        self._stop = asyncio.Event()
        self.held = Holds()
        self.fates: Counter[str] = Counter()
        self._waiting: dict[tuple[str, str], asyncio.Event] = {}
        self._on_steps: list[asyncio.Event] = []
        self.settled = asyncio.Event()
        """Set whenever anything was settled; what waits for it clears it."""

    def subscribe(self, provider: str, account: str) -> asyncio.Event:
        """An event that is set whenever something of this lane was settled, so that its fleet has room again."""
        return self._waiting.setdefault((provider, account), asyncio.Event())

    def on_step(self, event: asyncio.Event) -> None:
        """Set this event whenever a step of a flow was settled, so that its next one may have begun."""
        self._on_steps.append(event)

    def put(self, report: Report) -> None:
        """Settle this report soon."""
        self._reports.append(report)
        self._unsettled += 1
        self._all_settled.clear()
        self._first.set()
        if len(self._reports) >= self._batch:
            self._full.set()

    async def run(self) -> None:
        """Settle until cancelled; `drain` first."""
        aside = asyncio.create_task(self._settle_held())
        before = 0
        try:
            while True:
                await self._first.wait()
                if len(self._reports) < self._batch and not self._last:
                    await wait(self._full, self._flush if before <= FEW else self._fill)
                batch, self._reports = self._reports[: self._batch], self._reports[self._batch :]
                self._mark()
                before = len(batch)
                await self._settle(batch)
        finally:
            aside.cancel()

    def _mark(self) -> None:
        if not self._reports:
            self._first.clear()
        if len(self._reports) < self._batch:
            self._full.clear()

    async def drain(self) -> None:
        """Wait until all that was put is settled. What another session holds is kept as a proof then."""
        self._last = True
        self._more.set()
        self._full.set()
        await self._all_settled.wait()

    async def _settle(self, batch: list[Report]) -> None:
        """Settle a batch, and put aside what does not fit: nothing here waits for one row."""
        while True:
            try:
                async with self._database.connection() as connection:
                    fates = await results.settle_batch(connection, batch)
                break
            except AWAY as error:
                await self._retry.wait_after(error, self._stop)
            except Exception as error:  # one row must never stop the others: each is settled by itself
                if not isinstance(error, REFUSED):
                    telemetry.broken("worker", error, f"settling {len(batch)} results in one statement")
                fates = {}
                break
        self._retry.over()
        # Every report of its own row, and all of them settled: nearly always.
        done = batch if len(fates) == len(batch) else [report for report in batch if report.row.id in fates]
        if done:
            self.fates["settled"] += len(done)
            telemetry.settled_together(len(done))
        self._over(done)
        if len(done) < len(batch):
            self._aside += [_Aside(report) for report in batch if report.row.id not in fates]
        if self._aside:
            self._more.set()

    async def _settle_held(self) -> None:
        """Settle one by one what did not fit into a batch, again and again while another session holds its row."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            due = [one for one in self._aside if one.again <= now or self._last]
            if not due:
                self._more.clear()
                await wait(self._more, min((one.again for one in self._aside), default=now + IDLE) - now)
                continue
            for one in due:
                fate = await self._alone(one)
                if fate is not None:
                    self._aside.remove(one)
                    if fate != "left":
                        self._count(one.report, fate)
                    self._over([one.report])
            daemon_events.results_waiting(sum(one.failures > 0 for one in self._aside))

    async def _alone(self, one: _Aside) -> ResultFate | Literal["left"] | None:
        """What became of one report; None: it waits. left: it cannot be written, and its lease will end the claim."""
        report = one.report
        try:
            async with self._database.connection() as connection:
                fate = await results.settle_alone(connection, report, last=self._last and one.failures > 0)
        except AWAY as error:
            await self._aside_retry.wait_after(error, self._stop)
            return None
        except results.WAITING as error:
            one.failures += 1
            one.again = asyncio.get_running_loop().time() + backoff(one.failures, base=0.25, cap=5.0)
            if one.failures == 1:
                daemon_events.result_waiting(report.row.intent_id, report.row.attempt, error)
            return None
        except Exception as error:  # one row must never stop the others: it is left to its lease and the sweeper
            telemetry.broken("worker", error, f"settling {report.row.intent_id}")
            return "left"
        self._aside_retry.over()
        return fate

    def _count(self, report: Report, fate: ResultFate) -> None:
        self.fates[fate] += 1
        telemetry.reported(report.row.intent_id, report.row.attempt, name(report.outcome), fate)

    def _over(self, reports: Sequence[Report]) -> None:
        """Nothing is to be done about these any more."""
        if not reports:
            return
        for token, rows in Counter([report.row.token for report in reports]).items():
            self.held.let_go(token, rows)
        self.settled.set()
        if any(report.row.step_name is not None for report in reports):
            for event in self._on_steps:
                event.set()
        for lane in {(report.row.provider, report.row.account) for report in reports}:
            if (waiting := self._waiting.get(lane)) is not None:
                waiting.set()
        self._unsettled -= len(reports)
        if not self._unsettled:
            self._all_settled.set()
