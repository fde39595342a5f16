"""Parses large bodies of clients and providers in threads, so that they do not block the event loop.

A pass of Python's garbage collector goes through every list and object that is alive, in one step. So what is parsed
lives in such a thread alone, during one turn. An error must not keep it either, in the variables of the frames that it
came through.
"""

import asyncio
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LIGHT: Final = 16384
"""Bytes of an answer or event that is read in the loop: numbers, which cost the most, take 2.5 milliseconds."""

Made = TypeVar("Made")


class Aside:
    """One thread of this process, which does one thing at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: tuple[int, ThreadPoolExecutor] | None = None

    def begin(self, work: Callable[[], Made]) -> asyncio.Future[Made]:
        """Let the thread do it when its turn comes; the future has what it made, or raises what it raised."""
        return asyncio.get_running_loop().run_in_executor(self._thread(), whole, work)

    def _thread(self) -> ThreadPoolExecutor:
        # A process that was forked has the object, but not its thread.
        if self._executor is None or self._executor[0] != os.getpid():
            self._executor = os.getpid(), ThreadPoolExecutor(1, self._name)
        return self._executor[1]


PROVIDERS: Final = Aside("idem answer")
"""For what providers send: of all lanes together, because they share the one interpreter too."""


async def read(body: bytes | None, work: Callable[[], Made]) -> Made:
    """What `work` makes of a provider's bytes, at once if they are few. Raises what it raises, and CancelledError."""
    if body is None or len(body) <= LIGHT:
        return work()
    return await PROVIDERS.begin(work)


async def read_to_the_end(body: bytes, work: Callable[[], Made]) -> Made:
    """The same, but a cancellation is not passed on, as that of a call is not: what the answer says must reach its row.

    `Task.cancelling()` still tells the caller to stop.
    """
    if len(body) <= LIGHT:
        return work()
    reading = PROVIDERS.begin(work)
    while not reading.done():
        try:
            await asyncio.wait([reading])
        except asyncio.CancelledError:
            continue
    return reading.result()


def whole(work: Callable[[], Made]) -> Made:
    """What `work` makes; an error that it raises keeps nothing of what was read."""
    try:
        return work()
    except Exception as error:
        _forget(error)
        raise


def _forget(error: BaseException) -> None:
    """Empty the frames that an error came through, and those of the errors behind it; it can still be shown."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__]
