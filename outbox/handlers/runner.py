"""Runs handlers: finds the next event, gives it a turn, and keeps what failed."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from idem.outbox.daemon.pass_times import PassTime, PassTimes
from idem.outbox.daemon.retry import RetryLoop, wait, wait_for_any
from idem.outbox.database.address import Address
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.handlers import failures, queue
from idem.outbox.handlers.executor import NAME, Runs
from idem.outbox.handlers.executors import Executors
from idem.outbox.handlers.failures import HandlerFailure
from idem.outbox.handlers.handler import Handler
from idem.outbox.handlers.queue import WorkItem
from idem.outbox.handlers.run import Execution
from idem.outbox.handlers.turn import OwnTransaction
from idem.outbox.observe import telemetry

HEARTBEAT: Final = 30.0
"""Seconds between two heartbeats of a handler."""
TOGETHER: Final = 0.05
"""Seconds between a result that was settled and the look: results come in bursts, and one look finds them all."""


class HandlerRunner:
    """Runs the handlers of one process, each at most `threads` times at once; any number of processes may run.

    `limit`: seconds that a turn may take. `attempts`: failures until the dead letter. `poll`: seconds between two polls
    for work. What this worker settles wakes it at once; the poll finds what other processes have settled, and what is
    tried again.
    """

    def __init__(
        self, address: Address | str, handlers: Mapping[str, Handler], *, threads: int = 2, limit: float = 60.0,
        attempts: int = 8, poll: float = 1.0,
    ) -> None:  # fmt: skip
        self.handlers = dict(handlers)
        self._address = Address.of(address)
        self._limit = limit
        self._attempts = attempts
        self._poll = poll
        self._database = Database(self._address, name=NAME, size=3)
        self._opened = False
        runs = [Runs(name, *each.way()) for name, each in self.handlers.items()]
        self._executors = Executors(
            self._address, runs, lambda: self._database.connection(), threads=threads, limit=limit
        )
        self._executions: dict[tuple[str, object], asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._retry = RetryLoop("handlers", daemon="handlers", doing="looking for events to handle")
        self._succeeded = 0
        self._seen = float("-inf")

    async def run(
        self, stop: asyncio.Event, passes: PassTimes | None = None, settled: asyncio.Event | None = None
    ) -> None:
        """Run handlers for settled intents until `stop`; then wait for running handlers, and close.

        Each look for work is a pass of the daemon that `passes` belongs to. `settled` wakes it, and it clears it.
        """
        settled = settled or asyncio.Event()
        polling = (passes or PassTimes("handlers")).expect("handlers", self._poll)
        while not stop.is_set():
            await self._retry.attempt(partial(self._poll_once, stop, settled, polling), stop)
        await self.close()

    async def run_once(self) -> int:
        """Run every handler for all due events, and for those that become due by that; returns how many succeeded.

        A failure is kept and not tried again before it is due.
        """
        before = self._succeeded
        self._seen = float("-inf")
        while await self._begin() or self._executions:
            if self._executions:
                await asyncio.wait(list(self._executions.values()), return_when=asyncio.FIRST_COMPLETED)
        return self._succeeded - before

    async def close(self) -> None:
        """Wait for the turns that run, each until its time is up at the most, and close threads and connections."""
        if self._executions:
            await asyncio.wait(list(self._executions.values()))
        await self._executors.close()
        if self._opened:
            self._opened = False
            await self._database.close()

    async def _poll_once(self, stop: asyncio.Event, settled: asyncio.Event, polling: PassTime) -> None:
        self._freed.clear()
        settled.clear()
        begun = await self._begin()
        polling.made()
        self._retry.over()
        if begun == 0:
            # An event that was handled or a result that was settled may have brought work.
            await wait_for_any(stop, self._freed, settled, seconds=self._poll)
            if settled.is_set() and not self._freed.is_set():
                await wait(stop, TOGETHER)

    async def _begin(self) -> int:
        """Look for work and begin as many turns as may; how many, pages of old events counted too."""
        if not self._opened:
            self._database = Database(self._address, name=NAME, size=3)
            await self._database.open()
            self._opened = True
        loop = asyncio.get_running_loop()
        walked = 0
        async with self._database.connection() as connection:
            if self.handlers and loop.time() - self._seen >= HEARTBEAT:
                await queue.register(connection, self.handlers.values())
            if loop.time() - self._seen >= HEARTBEAT:
                while await queue.expand(connection):
                    pass
                self._seen = loop.time()
            if first := [name for name, each in self.handlers.items() if each.begin == "first"]:
                walked = await queue.walk(connection, first)
            found = await queue.find(connection, self._executors.rooms())
        fresh = [item for item in found if item.sequence not in self._executions]
        for item in fresh:
            if self._executors.room(item.handler) > 0:
                self._executions[item.sequence] = asyncio.create_task(self._execution(item))
                self._executors.take(item.handler)
        return len(fresh) + walked

    async def _execution(self, item: WorkItem) -> None:
        try:
            await self._execute(item)
        except (*AWAY, *REFUSED) as error:
            # An event whose mark was not committed is found again when the database is back.
            telemetry.handler_not_started(item.handler, item.intent, item.number, error)
        except Exception as error:
            telemetry.broken("handlers", error, f"running {item.handler} for {item.intent}")
        finally:
            del self._executions[item.sequence]
            self._executors.leave(item.handler)
            self._freed.set()

    async def _execute(self, item: WorkItem) -> None:
        execution = Execution(item, self.handlers[item.handler], self._limit)
        result = await self._executors.run(item.handler, execution)
        match result:
            case "succeeded":
                self._succeeded += 1
                telemetry.handler_succeeded(item.handler, item.intent, item.number)
            case "marked":
                async with self._database.connection() as connection:
                    await failures.drop(connection, item)
            case "not_now":
                pass
            case _:
                await self._failed(execution, result)

    async def _failed(self, execution: Execution, error: BaseException) -> None:
        if execution.backend is None:
            # It never began: no connection, or not this transaction. Not the handler's failure, and no hot loop.
            telemetry.handler_not_started(execution.item.handler, execution.item.intent, execution.item.number, error)
            await asyncio.sleep(1.0)
            return
        final = isinstance(error, OwnTransaction) or execution.ended_by_function is not None
        why: HandlerFailure = failures.failure(execution.own_transaction() if final else error, final=final)
        item = execution.item
        async with self._database.connection() as connection:
            stopped = await failures.fail(connection, item, why, attempts=self._attempts)
        if stopped is None:
            # The answer to its COMMIT was lost: it is done.
            telemetry.handler_succeeded(item.handler, item.intent, item.number)
        else:
            telemetry.handler_failed(item.handler, item.intent, item.number, error, stopped=stopped)
