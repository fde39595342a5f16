"""A lane takes what is due for as long as something is: at the speed of its calls, not of its passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Any

from idem.outbox.calls.lane import Lane


class Slots:
    """The slots that rows or events may take of a lane, which they share where its provider sends events.

    Neither takes the last one, so that a backlog of one keeps none of the other waiting; in a lane of one slot they
    take turns, one pass each.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._shared = lane.provider.webhook is not None

    def room(self, own: int) -> int:
        """How many more may be taken by who holds `own` now."""
        most = max(1, self._lane.slots - 1) if self._shared else self._lane.slots
        return max(0, min(self._lane.room(own), most - own))

    async def take_all(
        self, start: Callable[[], Awaitable[int]], own: Set[asyncio.Task[Any]], *, stop: asyncio.Event, seconds: float
    ) -> None:
        """Take by `start` as slots, fleet and pace let it, until nothing is due, `stop`, or for so many seconds.

        `start` adds to `own` what it has taken, and says how many that was.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if self._shared and self._lane.slots == 1 else seconds)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                took, room, left = await start(), self.room(len(own)), until - loop.time()
                if left <= 0 or (room > 0 and not took and not own):
                    return
                if room > 0 and took:
                    continue
                # With room and nothing taken it may be the fleet that is full: what ends here makes room in it.
                wait = self._lane.wait(left) if self._lane.room(len(own)) <= 0 else left
                await asyncio.wait([*own, stopping], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
