"""A function of the user's while it runs: in a thread of its own, or as a task if it is asynchronous.

A thread cannot be ended from outside, and the threads are daemons so that a process can end all the same. The event
loop's default executor is used for nothing (hazard 64).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from idem.outbox.values import clock

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
            else in_a_thread(functools.partial(function, *arguments))
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


def in_a_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Begin it in a new thread. Whatever it raises, an exit too, is the future's exception."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def end(result: Any, error: BaseException | None) -> None:
        if error is not None:
            ended.set_exception(error)
            # Nobody may be waiting any more, and then it is not worth a complaint of asyncio's.
            ended.exception()
        else:
            ended.set_result(result)

    def run() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            result = work()
        except Exception as error:
            failed = error
        except BaseException as error:  # an exit is not this code's to order, and a future takes no StopIteration
            failed = RuntimeError(type(error).__name__)
        if isinstance(failed, StopIteration):
            failed = RuntimeError("StopIteration")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(end, result, failed)

    threading.Thread(target=run, name="idem-send", daemon=True).start()
    return ended


async def _awaited(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return await function(*arguments)
    except (KeyboardInterrupt, SystemExit) as error:  # an exit is not this code's to order
        raise RuntimeError(type(error).__name__) from None
