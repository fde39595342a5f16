"""A function of the user's while it runs: in a thread, or as a task if it is asynchronous.

A thread cannot be ended from outside, and the threads are daemons so that a process can end all the same. The event
loop's default executor is used for nothing (hazard 64).
"""

import asyncio
import contextvars
import functools
import inspect
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from idem.outbox.calls.kept_threads import kept
from idem.outbox.calls.returns import Returns, returns
from idem.outbox.values import clock, storable

Made = TypeVar("Made")

LAST_WORDS = 1.0
"""Seconds that an asynchronous function has to end after it was cancelled."""
WATCH = 0.1
"""Seconds between two looks at the turns whose time may be over."""


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
            await _until_done(self.ended, left)
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


async def _until_done(ended: asyncio.Future[Any], seconds: float) -> None:
    """As `asyncio.wait` with a timeout, of one future: half as costly."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def wake(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(seconds, wake)
    ended.add_done_callback(wake)
    try:
        await over
    finally:
        timer.cancel()
        ended.remove_done_callback(wake)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@dataclass(slots=True, eq=False)
class _Turn:
    work: Callable[[], Any]
    ended: asyncio.Future[Any]
    put: float
    began: float | None = None


class _Room:
    """The turns of one operation: those that wait, the threads that take them, and how many of these run code."""

    def __init__(self, slots: int) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[_Turn] = deque()
        self.threads = 0
        self.busy = 0
        self._slots = slots

    def wants_another(self) -> bool:
        """Whether to call another thread, which is counted at once. None while a called one has not begun: it may do
        all that waits, if that ends at once. Under the lock."""
        wanted = bool(self.waiting) and self.busy == self.threads < self._slots
        self.threads += wanted
        return wanted


class Turns:
    """Runs code of operations in threads, each operation at most `slots` at once and each turn `limit` seconds at the
    most, so that code which hangs keeps no other operation waiting.

    What goes on beyond its limit keeps its slot. Belongs to one event loop.
    """

    def __init__(self, *, limit: float, patience: float, slots: int = 4) -> None:
        self._limit = limit
        self._patience = patience
        self._rooms: defaultdict[str, _Room] = defaultdict(lambda: _Room(slots))
        self._open: deque[_Turn] = deque()
        self._watch: asyncio.TimerHandle | None = None

    async def run(self, operation: str, work: Callable[[], Made]) -> Made:
        """What it returns. Raises what it raises, and TimeoutError: it has no slot after `patience` seconds, or takes
        longer than its limit."""
        loop = asyncio.get_running_loop()
        turn, room = _Turn(work, loop.create_future(), time.monotonic()), self._rooms[operation]
        self._open.append(turn)
        if self._watch is None:
            self._watch = loop.call_later(WATCH, self._end_late)
        with room.lock:
            room.waiting.append(turn)
            another = room.wants_another()
        if another:
            self._call(room, returns())
        made: Made = await turn.ended
        return made

    def _take(self, room: _Room, back: Returns) -> None:
        while True:
            with room.lock:
                if not room.waiting:
                    room.threads -= 1
                    return
                turn = room.waiting.popleft()
                room.busy += 1
                another = room.wants_another()
            if another:
                self._call(room, back)
            if not turn.ended.done():
                turn.began = time.monotonic()
                _do(turn.work, turn.ended, back)
            with room.lock:
                room.busy -= 1

    def _call(self, room: _Room, back: Returns) -> None:
        try:
            kept().begin(functools.partial(self._take, room, back))
        except RuntimeError:  # the system has no thread left: what waits has the end of its patience
            with room.lock:
                room.threads -= 1

    def _end_late(self) -> None:
        """End the turns whose time is over: of code that has not begun its patience, else its limit."""
        now, left = time.monotonic(), deque[_Turn]()
        for turn in self._open:
            if turn.ended.done():
                continue
            since, limit = (turn.put, self._patience) if turn.began is None else (turn.began, self._limit)
            if now - since > limit:
                why = "no slot was free within" if turn.began is None else "it took longer than"
                turn.ended.set_exception(TimeoutError(f"{why} {limit:g} s"))
            else:
                left.append(turn)
        self._open = left
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(WATCH, self._end_late) if left else None


def in_a_thread(work: Callable[[], Made]) -> asyncio.Future[Made]:
    """Begin it in a thread of its own; the future ends with it, and is not to be cancelled.

    What it raises is the future's exception: an exit and a StopIteration as a RuntimeError that names it. Raises
    RuntimeError: the system has no thread left, and nothing of it has run.
    """
    ended: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
    kept().begin(functools.partial(_do, work, ended, returns()))
    return ended


def _do(work: Callable[[], Any], ended: asyncio.Future[Any], back: Returns) -> None:
    try:
        # A kept thread has had others before: what they set in their context (the precision of decimals, a tenant) ends
        # with them.
        made = contextvars.Context().run(work)
    except BaseException as error:
        back.put(functools.partial(_fail, ended, passed_on(error)))
    else:
        back.put(functools.partial(_end, ended, made))


def _end(ended: asyncio.Future[Any], made: Any) -> None:
    if not ended.done():
        ended.set_result(made)


def _fail(ended: asyncio.Future[Any], error: Exception) -> None:
    if not ended.done():
        ended.set_exception(error)
        # Reading it keeps asyncio from complaining where no task waits for it any more.
        ended.exception()


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
