"""A thread that functions of one kind run in, one at a time, with an engine of its own; asynchronous ones on its loop.

Never the event loop of the daemon and never a default executor: what blocks here blocks its own seat. A thread that
hangs is left behind, and ends with the process.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, QueuePool

from idem.outbox.database import session
from idem.outbox.database.address import Address
from idem.outbox.handlers.handler import ASYNC, ConnectionKind
from idem.outbox.handlers.turn import Turn, TurnEnd, run_turn, run_turn_async

NAME: Final = "idem-handlers"
URL: Final = "postgresql+psycopg://"
SILENCE: Final = 75.0
"""Seconds without an answer after which a function's line is given up: longer than its turn may take."""
OPTIONS: Final[Mapping[str, Any]] = {"autocommit": False, "connect_timeout": 10, "prepare_threshold": None}

ENGINE: Final[Mapping[str, Any]] = {
    "pool_size": 1, "max_overflow": 0, "hide_parameters": True, "isolation_level": "READ COMMITTED",
}  # fmt: skip
"""One connection, without the role's default isolation; errors never show parameters."""

Ended = Callable[["Executor", TurnEnd | BaseException], None]


@dataclass(frozen=True, slots=True)
class Runs:
    """What an executor runs: functions of one way. `session`: the name of its connection; `kind`: the class of session
    that they take, where it is one of the user's own."""

    name: str
    way: ConnectionKind
    kind: type | None = None
    session: str = NAME


class Executor:
    """One thread and one connection for one function. `ended` is called in the loop that made it, after each turn."""

    def __init__(self, address: Address, runs: Runs, ended: Ended, *, silence: float = SILENCE) -> None:
        self._address = address
        self._silence = silence
        self._runs = runs
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[TurnEnd]] | None = None
        self._thread = threading.Thread(target=self._run, name=f"idem-handler {runs.name}", daemon=True)
        self._thread.start()

    def put(self, turn: Turn) -> None:
        """Run this turn; the seat must be free."""
        self._turns.put(turn)

    def close(self) -> None:
        """End after the turn that runs, if one does."""
        self._turns.put(None)

    def cancel(self) -> None:
        """Cancel the running asynchronous function at its next await; a synchronous one does not notice."""
        if self._running is not None:
            loop, task = self._running
            with suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)

    @property
    def is_async(self) -> bool:
        return self._runs.way in ASYNC

    @property
    def alive(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        way, kind = self._runs.way, self._runs.kind
        if way in ASYNC:
            with asyncio.Runner() as runner:
                engine = async_engine(self._address, self._runs.session, silence=self._silence)
                self._serve(lambda turn: runner.run(self._run_async(engine, turn)))
                runner.run(engine.dispose())
            return
        engine_ = sync_engine(self._address, self._runs.session, silence=self._silence)

        def one(turn: Turn) -> TurnEnd:
            with engine_.connect() as connection:
                return run_turn(connection, turn, way, kind)

        self._serve(one)
        engine_.dispose()

    def _serve(self, run: Callable[[Turn], TurnEnd]) -> None:
        while (turn := self._turns.get()) is not None:
            result: TurnEnd | BaseException
            try:
                result = run(turn)
            except BaseException as error:  # a function may raise anything, SystemExit too: it ends its turn alone
                result = error
            with suppress(RuntimeError):  # the daemon's loop has ended, and nothing waits any more
                self._loop.call_soon_threadsafe(self._ended, self, result)

    async def _run_async(self, engine: AsyncEngine, turn: Turn) -> TurnEnd:
        async def one() -> TurnEnd:
            async with engine.connect() as connection:
                return await run_turn_async(connection, turn, self._runs.way, self._runs.kind)

        task = asyncio.ensure_future(one())
        self._running = asyncio.get_running_loop(), task
        try:
            return await task
        finally:
            self._running = None


def sync_engine(address: Address, name: str, *, silence: float = SILENCE) -> Engine:
    """The engine of a synchronous function's thread, see `ENGINE`."""

    def connect() -> psycopg.Connection[Any]:
        connection = session.bare_sync(address, name=name, **OPTIONS)
        connection.silence = silence
        return connection

    engine = create_engine(URL, creator=connect, poolclass=QueuePool, **ENGINE)
    _clean(engine)
    return engine


def async_engine(address: Address, name: str, *, silence: float = SILENCE) -> AsyncEngine:
    """The same for asynchronous functions."""

    async def connect(*_: Any, **__: Any) -> psycopg.AsyncConnection[Any]:
        connection = await session.bare(address, name=name, **OPTIONS)
        connection.silence = silence
        return connection

    engine = create_async_engine(
        "postgresql+psycopg://", async_creator=connect, poolclass=AsyncAdaptedQueuePool, **ENGINE
    )
    _clean(engine.sync_engine)
    return engine


CLEAN = "DISCARD ALL"


def _clean(engine: Engine) -> None:
    @event.listens_for(engine, "reset")
    def discard(connection: Any, _: Any, state: Any) -> None:
        # What a function has set, locked or made in its session is not the next one's.
        if state.terminate_only or not state.asyncio_safe:
            return
        connection.rollback()
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(CLEAN)
        cursor.close()
        connection.autocommit = False
