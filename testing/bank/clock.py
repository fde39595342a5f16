"""The bank's clock: the wall clock, which a test may advance."""

import asyncio
import time


class Clock:
    """Seconds since the epoch. Retention, lag and pending end by this clock; stalls are real time."""

    def __init__(self) -> None:
        self.shifted = 0.0
        self._moved: asyncio.Event | None = None

    def now(self) -> float:
        return time.time() + self.shifted

    def shift(self, seconds: float) -> None:
        """Advance the clock; call it in the loop's thread."""
        self.shifted += seconds
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def until(self, moment: float) -> None:
        """Sleep until the clock shows `moment`, also if it is advanced meanwhile."""
        while (left := moment - self.now()) > 0:
            if self._moved is None:
                self._moved = asyncio.Event()
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                pass
