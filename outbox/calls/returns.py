"""What threads return to an event loop: one wake-up of the loop for all that has come together."""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary


class Returns:
    """The way from threads to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop itself, which would keep itself alive by this.
        self._loop = weakref.ref(loop)
        self._returned: deque[Callable[[], object]] = deque()
        self._called = False

    def put(self, what: Callable[[], object]) -> None:
        """From any thread: have the loop call it soon; not where the loop has ended meanwhile."""
        self._returned.append(what)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):
                if (loop := self._loop()) is not None:
                    loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # First: what is put from now on calls again.
        self._called = False
        while self._returned:
            self._returned.popleft()()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Returns] = WeakKeyDictionary()


def returns() -> Returns:
    """The way to the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Returns(loop)
    return found
