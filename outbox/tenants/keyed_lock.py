"""A lock for each name, which exists as long as it is in use."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Waiting:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


class KeyedLock:
    """Lets one holder of each name run at a time. Unused names take no memory. For the loops of one thread."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, Hashable], _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def holding(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until no other holder has this name."""
        slot = id(asyncio.get_running_loop()), name
        waiting = self._waiting.setdefault(slot, _Waiting())
        waiting.wanted += 1
        try:
            async with waiting.lock:
                yield
        finally:
            waiting.wanted -= 1
            if not waiting.wanted:
                del self._waiting[slot]
