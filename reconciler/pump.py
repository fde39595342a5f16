"""A lane claims what is due for as long as something is: at the speed of its calls, not of its passes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from idem.outbox.calls.lane import Lane
from idem.outbox.calls.user_code import LAST_WORDS


class Pump:
    """The questions about one kind of work (rows, or events) that run in a lane now.

    Rows and events share the slots of a lane whose provider sends events. Neither uses the last slot, so that a backlog
    of one keeps none of the other waiting; in a lane of one slot they alternate, one pass each.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._shared = lane.provider.webhook is not None
        self._running: set[asyncio.Task[None]] = set()

    def room(self) -> int:
        """How many more questions may start now."""
        own = len(self._running)
        most = max(1, self._lane.slots - 1) if self._shared else self._lane.slots
        return max(0, min(self._lane.room(own), most - own))

    def begin(self, question: Coroutine[Any, Any, None]) -> None:
        """Run a question in its own task."""
        task = asyncio.create_task(question)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def run(self, start: Callable[[], Awaitable[int]], stop: asyncio.Event, seconds: float) -> None:
        """Call `start` as slots, fleet and pace allow, until nothing is due, until `stop`, or for so many seconds.

        `start` claims what is due, begins a question for each, and returns how many.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if self._shared and self._lane.slots == 1 else seconds)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                claimed, room, left = await start(), self.room(), until - loop.time()
                if left <= 0 or (room > 0 and not claimed and not self._running):
                    return
                if room > 0 and claimed:
                    continue
                # With room and nothing claimed, the fleet may be full: each question that ends here makes room in it.
                wait = self._lane.wait(left) if self._lane.room(len(self._running)) <= 0 else left
                await asyncio.wait([*self._running, stopping], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def finish(self, timeout: float | None = None) -> bool:
        """Wait for the questions that run; after `timeout` seconds cancel them. False: one has not ended then either,
        an asynchronous function of the user's that cannot be ended."""
        running = set(self._running)
        if running:
            _, running = await asyncio.wait(running, timeout=timeout)
        for task in running:
            task.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=2 * LAST_WORDS)
        return not running
