"""Bodies that cost more than a moment are read in a thread, so that the loop goes on; one at a time for each tenant.

A thread frees the loop only between two steps of Python: json.loads reads a text in one. So a body has a greatest size
and a greatest number of values (`outbox.canonical`), and no single step takes long.

A pass of Python's garbage collector goes through every list and object that is alive, in one step too. So what is
parsed lives in this thread alone, during one turn: no request may keep it while it waits for its turn or for the
database. An error must not keep it either, in the variables of the frames that it came through.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from idem.outbox.configuration import steps
from idem.outbox.http.keyed_lock import KeyedLock

LIGHT: Final = 4096
"""Bytes of a body that is read at once: fewer than a change of threads is worth."""

Made = TypeVar("Made")


class Heavy:
    """One thread for the heavy bodies of a process. A tenant that sends many waits behind itself alone."""

    def __init__(self) -> None:
        self._executor: tuple[int, ThreadPoolExecutor] | None = None
        self._turns = KeyedLock()

    async def run(self, tenant: str, size: int, work: Callable[[], Made]) -> Made:
        """What `work` makes of a body of `size` bytes; raises what it raises."""
        if size <= LIGHT:
            try:
                with steps.at_once():
                    return _whole(work)
            except steps.NotAtOnce:
                pass  # few bytes, and much work for the operation's schema: begin again in the thread
        async with self._turns.holding(tenant):
            return await asyncio.get_running_loop().run_in_executor(self._thread(), _whole, work)

    def _thread(self) -> ThreadPoolExecutor:
        # A process that was forked has the object, but not its thread.
        if self._executor is None or self._executor[0] != os.getpid():
            self._executor = os.getpid(), ThreadPoolExecutor(1, "idem body")
        return self._executor[1]


def _whole(work: Callable[[], Made]) -> Made:
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


HEAVY: Final = Heavy()
"""Of this process: two APIs in it share the one interpreter too."""
