"""The executors of several functions: so many turns of each at once, each turn under a time limit."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from idem.outbox.database.address import Address
from idem.outbox.database.pool import AWAY
from idem.outbox.handlers.executor import Executor, Runs
from idem.outbox.handlers.turn import Turn, TurnEnd

LEFT_BEHIND: Final = 16
"""Threads of one function that may hang before no more of its turns are begun in this process."""
GRACE: Final = 3.0
"""Seconds that a function may still take after its connection was ended, before its thread is left behind."""

Connect = Callable[[], AbstractAsyncContextManager[AsyncConnection[Any]]]


@dataclass(slots=True)
class _Pool:
    """The executors of one function. `hanging`: threads that were left behind and have not ended."""

    runs: Runs
    free: list[Executor] = field(default_factory=list)
    running: int = 0
    hanging: int = 0


class Executors:
    """Executors for these functions, by their names: each takes at most `threads` turns at once, of `limit` seconds.

    `connect` gives a connection on which a turn is stopped whose time is up.
    """

    def __init__(self, address: Address, runs: list[Runs], connect: Connect, *, threads: int, limit: float) -> None:
        self._address = address
        self._connect = connect
        self._threads = threads
        self._limit = limit
        self._pools = {each.name: _Pool(each) for each in runs}
        self._ending: dict[Executor, asyncio.Future[TurnEnd | BaseException]] = {}

    def rooms(self) -> dict[str, int]:
        """How many turns of each function may begin now, where any may."""
        return {name: room for name in self._pools if (room := self.room(name)) > 0}

    def room(self, name: str) -> int:
        """How many turns of this function may begin now."""
        pool = self._pools[name]
        return 0 if pool.hanging >= LEFT_BEHIND else self._threads - pool.running

    def take(self, name: str) -> None:
        """Count a turn that is about to run; `leave` afterwards."""
        self._pools[name].running += 1

    def leave(self, name: str) -> None:
        self._pools[name].running -= 1

    async def run(self, name: str, turn: Turn) -> TurnEnd | BaseException:
        """Run a turn that was counted: its end, or what it raised; TimeoutError: its time was up."""
        pool = self._pools[name]
        silence = self._limit + 5 * GRACE
        executor = pool.free.pop() if pool.free else Executor(self._address, pool.runs, self._ended, silence=silence)
        ended: asyncio.Future[TurnEnd | BaseException] = asyncio.get_running_loop().create_future()
        self._ending[executor] = ended
        executor.put(turn)
        done, _ = await asyncio.wait([ended], timeout=self._limit)
        if not done:
            return await self._stop(executor, turn, ended, pool)
        pool.free.append(executor)
        return ended.result()

    async def close(self) -> None:
        """End the executors that are free; all turns are over."""
        threads = [executor for pool in self._pools.values() for executor in pool.free]
        for executor in threads:
            executor.close()
        for pool in self._pools.values():
            pool.free.clear()
        # Idle threads end at once; a moment for their connections to say good-bye.
        for _ in range(100):
            if not any(executor.alive for executor in threads):
                break
            await asyncio.sleep(0.01)

    async def _stop(
        self, executor: Executor, turn: Turn, ended: asyncio.Future[TurnEnd | BaseException], pool: _Pool
    ) -> TurnEnd | BaseException:
        """Stop a turn whose time is up: first by a cancel, then by its connection; a thread that continues is
        abandoned."""
        executor.close()
        executor.cancel()
        done, _ = await asyncio.wait([ended], timeout=min(GRACE, self._limit) if executor.is_async else 0)
        if not done and turn.backend is not None:
            # Whether the database can do this or not: a thread that continues is counted.
            with suppress(*AWAY, psycopg.Error):
                async with self._connect() as connection:
                    await connection.execute(TERMINATE, {"backend": turn.backend})
            done, _ = await asyncio.wait([ended], timeout=GRACE)
        if not done:
            pool.hanging += 1

            def came_back(_: object) -> None:
                pool.hanging -= 1

            ended.add_done_callback(came_back)
        elif ended.result() == "succeeded":
            return "succeeded"
        return TimeoutError(f"it took more than {self._limit:g} s, and idem stopped it")

    def _ended(self, executor: Executor, result: TurnEnd | BaseException) -> None:
        ended = self._ending.pop(executor, None)
        if ended is not None and not ended.done():
            ended.set_result(result)


TERMINATE = "SELECT pg_terminate_backend(%(backend)s)"
