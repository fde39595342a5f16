"""Runs the local steps of flows: finds the rows that are due, gives each a turn, and keeps what failed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from idem.outbox.daemon.pass_times import PassTime
from idem.outbox.daemon.retry import RetryLoop, wait_for_any
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.handlers import failures
from idem.outbox.handlers.executor import Runs
from idem.outbox.handlers.executors import Executors
from idem.outbox.handlers.handler import way
from idem.outbox.handlers.turn import OwnTransaction
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle import local_steps
from idem.outbox.settle.decide import SWEEPS_THAT_SHOW_A_CRASH
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import is_gone, lock_soon
from idem.outbox.worker import local_rows
from idem.outbox.worker.local_rows import DueStep
from idem.outbox.worker.local_turn import LocalTurn, RowIsHeld

SESSION: Final = "idem-local-steps"
TAKES: Final = "the session, the params and the results so far"
HELD: Final = 0.25
"""Seconds until a row is looked at again that another session holds."""


class LocalSteps:
    """Runs the local steps that this process knows, each at most `threads` times at once; any number of processes may.

    `limit`: seconds that a turn may take. `attempts`: failures until the row is at rest, with a dead letter.
    """

    def __init__(
        self, database: Database, catalogue: Catalogue, *, threads: int = 2, limit: float = 60.0, attempts: int = 8
    ) -> None:
        self._database = database
        self._catalogue = catalogue
        self._limit = limit
        self._attempts = attempts
        self._terms = local_rows.local_terms(catalogue)
        self._executors = Executors(
            database.address, [self._runs(call) for call in self._terms], database.connection, threads=threads,
            limit=limit,
        )  # fmt: skip
        self._turns: dict[UUID, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._begun: Callable[[], None] = lambda: None
        self._retry = RetryLoop("worker local steps", doing="looking for local steps to run")
        self._ended = 0

    async def run(self, stop: asyncio.Event, woken: asyncio.Event, due: PassTime, begun: Callable[[], None]) -> None:
        """Run steps until `stop`, whenever the pass `due` is or when `woken`; then wait for those that run.

        `begun` is called when a step has ended, so that another one may have begun, or the flow has ended.
        """
        self._begun = begun
        while not stop.is_set():
            await self._retry.attempt(partial(self._pass, stop, woken, due), stop)
        if self._turns:
            await asyncio.wait(list(self._turns.values()))

    async def once(self) -> int:
        """Run every step that is due, and those that become due by that; how many have ended."""
        before = self._ended
        while await self._begin() or self._turns:
            if self._turns:
                await asyncio.wait(list(self._turns.values()), return_when=asyncio.FIRST_COMPLETED)
        return self._ended - before

    async def close(self) -> None:
        """Wait for the turns that run, each until its time is up at the most, and close threads and connections."""
        if self._turns:
            await asyncio.wait(list(self._turns.values()))
        await self._executors.close()

    def _runs(self, call: str) -> Runs:
        step = self._terms[call].operation.step
        assert step is not None and step.run is not None
        return Runs(call, *way(step.run, f"{call}: run=", TAKES, 3), session=SESSION)

    async def _pass(self, stop: asyncio.Event, woken: asyncio.Event, due: PassTime) -> None:
        self._freed.clear()
        woken.clear()
        begun = await self._begin()
        due.made()
        self._retry.over()
        if begun == 0:
            await wait_for_any(stop, self._freed, woken, seconds=due.every)

    async def _begin(self) -> int:
        """Look for rows that are due, and begin as many turns as may; how many."""
        async with self._database.connection() as connection:
            found = await local_rows.take(connection, self._catalogue, self._executors.rooms(), self._turns)
        for step in found:
            self._executors.take(step.call)
            self._turns[step.id] = asyncio.create_task(self._turn(step))
        return len(found)

    async def _turn(self, step: DueStep) -> None:
        try:
            await self._run(step)
        except (*AWAY, *REFUSED) as error:
            # A step whose end was not committed is found again when the database is back.
            telemetry.local_step_not_started(step.call, step.intent, error)
        except Exception as error:  # one row must never stop the others: it is found again
            telemetry.broken("worker", error, f"running {step.call} for {step.intent}")
            await asyncio.sleep(1.0)
        finally:
            del self._turns[step.id]
            self._executors.leave(step.call)
            self._freed.set()

    async def _run(self, step: DueStep) -> None:
        if step.taken > SWEEPS_THAT_SHOW_A_CRASH:
            await self._crashes(step)
            return
        turn = LocalTurn(step, self._terms[step.call], self._catalogue.environment, self._limit)
        result = await self._executors.run(step.call, turn)
        match result:
            case "succeeded":
                self._succeeded(step, turn)
            case "not_now" | "marked" | RowIsHeld():
                await self._give_back(step)
                await asyncio.sleep(HELD)
            case _:
                await self._failed(step, turn, result)

    async def _give_back(self, step: DueStep) -> None:
        async with self._database.connection() as connection:
            await local_rows.give_back(connection, step)

    async def _crashes(self, step: DueStep) -> None:
        """Three processes died while they ran it, or lost the database each time: an operator looks at it first."""
        async with self._database.connection() as connection, after_commit.transaction(connection):
            found = await lock_soon(connection, step.id)
            if found is None or found.row.status is not OutboxStatus.UNFROZEN or found.row.sweeps != step.taken:
                return
            await write(connection, [local_steps.crashed(found.row, self._terms[step.call])])
        died = RuntimeError(f"{step.taken - 1} processes died while they ran it")
        telemetry.local_step_failed(step.call, step.intent, died, stopped=True)

    def _succeeded(self, step: DueStep, turn: LocalTurn) -> None:
        self._ended += 1
        for each in turn.moved:
            after_commit.moved(each)
        if turn.asks:
            return
        telemetry.local_step_ended(step.call, step.intent)
        self._begun()

    async def _failed(self, step: DueStep, turn: LocalTurn, error: BaseException) -> None:
        if turn.backend is None or turn.row is None:
            # It never began: no connection, or not this transaction. Not the step's failure, and no hot loop.
            telemetry.local_step_not_started(step.call, step.intent, error)
            await self._give_back(step)
            await asyncio.sleep(1.0)
            return
        broken = isinstance(error, OwnTransaction) or turn.ended_by_function is not None
        why = failures.failure(turn.own_transaction() if broken else error, final=broken or turn.final)
        async with self._database.connection() as connection, after_commit.transaction(connection):
            found = await lock_soon(connection, step.id)
            gone = found is None and await is_gone(connection, step.id)
            current = found is not None and found.row.status is OutboxStatus.UNFROZEN
            change = None
            # Else its end is written (the answer to its COMMIT was lost), another process has kept a failure of it, or
            # what has failed still holds the row.
            if found is not None and current and found.row.failures == turn.row.failures:
                change = local_steps.failed(
                    found.row, why.kind, why.message, turn.terms, attempts=self._attempts, final=why.final
                )
                if not await write(connection, [change]):
                    change = None
        if gone:
            self._succeeded(step, turn)
        elif change is None:
            telemetry.local_step_not_started(step.call, step.intent, error)
        else:
            stopped = change.status is OutboxStatus.HELD
            telemetry.local_step_failed(step.call, step.intent, error, stopped=stopped)
