"""A function of the user's while it runs: in a thread of its own, or as a task if it is asynchronous.

A thread cannot be ended from outside, and the threads are daemons so that a process can end all the same. The event
loop's default executor is used for nothing (hazard 64).
"""

import asyncio
import functools
import inspect
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from idem.outbox.values import clock, storable

Made = TypeVar("Made")

LAST_WORDS = 1.0
"""Seconds that an asynchronous function has to end after it was cancelled."""


class Running:
    """One call of a function. Belongs to one event loop.

    `overran` is called once if it is still running at `ends` (boot clock, seconds) and cannot be ended.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, ends: float, overran: Callable[[], None]) -> None:
        self._ends = ends
        self._overran = overran
        self._reported = False
        self.late = False
        self.can_be_ended = is_async(function)
        self.ended: asyncio.Future[Any] = (
            asyncio.ensure_future(_awaited(function, arguments))
            if self.can_be_ended
            else in_a_thread(functools.partial(function, *arguments), "idem-send")
        )

    async def until_ended(self) -> bool:
        """Wait for its end, beyond the deadline too; False: the waiting was cancelled and the function still runs."""
        try:
            if not await self.in_time():
                await asyncio.wait({self.ended})
        except asyncio.CancelledError:
            if self.can_be_ended and not self.ended.done():
                self.ended.cancel()
                await asyncio.wait({self.ended}, timeout=LAST_WORDS)
            return self.ended.done()
        return True

    async def in_time(self) -> bool:
        """Wait for its end until the deadline; whether it has ended, by itself or because it could be ended."""
        while not self.ended.done() and (left := self._ends - clock.boottime()) > 0:
            await asyncio.wait({self.ended}, timeout=left)
        if not self.ended.done():
            self.late = True
            if self.can_be_ended:
                self.ended.cancel()
                await asyncio.wait({self.ended}, timeout=LAST_WORDS)
            if not self.ended.done() and not self._reported:
                self._reported = True
                self._overran()
        return self.ended.done()

    def result(self) -> Any:
        """What it has returned. Raises what it has raised; TimeoutError and CancelledError if it was ended."""
        if self.ended.cancelled() and self.late:
            raise TimeoutError
        return self.ended.result()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Turns:
    """Runs code of operations in threads of its own, each operation at most `slots` at once and each turn `limit`
    seconds at the most, so that code which hangs keeps no other operation waiting.

    The threads are daemons: what goes on beyond its limit keeps its slot, and ends with the process.
    """

    def __init__(self, name: str, *, limit: float, patience: float, slots: int = 4) -> None:
        self._name = name
        self._limit = limit
        self._patience = patience
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(slots))

    async def run(self, operation: str, work: Callable[[], Made]) -> Made:
        """What it returns. Raises what it raises, and TimeoutError: it has no slot after `patience` seconds, or takes
        longer than its limit."""
        slot = self._slots[operation]
        await asyncio.wait_for(slot.acquire(), self._patience)
        ended = in_a_thread(work, self._name)
        ended.add_done_callback(lambda _: slot.release())
        return await asyncio.wait_for(asyncio.shield(ended), self._limit)


def in_a_thread(work: Callable[[], Made], name: str) -> asyncio.Future[Made]:
    """Begin it in a new thread; the future ends with it, and is not to be cancelled.

    What it raises is the future's exception: an exit and a StopIteration as a RuntimeError that names it.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Made] = loop.create_future()

    def end(error: BaseException) -> None:
        ended.set_exception(error)
        # Reading it keeps asyncio from complaining where no task waits for it any more.
        ended.exception()

    def run() -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            try:
                made = work()
            except BaseException as error:
                loop.call_soon_threadsafe(end, passed_on(error))
            else:
                loop.call_soon_threadsafe(ended.set_result, made)

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended


def passed_on(error: BaseException) -> Exception:
    """The error that is passed on: user code must not terminate the process, and a future takes no StopIteration."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {storable.text(error, 400)}".removesuffix(": "))


async def _awaited(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return await function(*arguments)
    except (KeyboardInterrupt, SystemExit) as error:
        raise passed_on(error) from None
