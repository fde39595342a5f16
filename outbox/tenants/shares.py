"""Limits what one tenant uses of a process at once: requests, and connections of the pool. The rest is for others."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

RETRY_AFTER: Final = 1.0
"""Seconds after which a tenant may send a request again that was one too many."""


class UnderWay:
    """The requests of each tenant that are under way, at most `most`: each holds a connection of its client."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self._running: Counter[str] = Counter()

    def begin(self, tenant: str) -> bool:
        """Count the request that this task answers until it has ended; False: the tenant has as many as it may."""
        request = asyncio.current_task()
        assert request is not None
        if self._running[tenant] >= self.most:
            return False
        self._running[tenant] += 1
        request.add_done_callback(lambda _: self._release(tenant))
        return True

    def _release(self, tenant: str) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]


@dataclass(slots=True)
class _Share:
    free: asyncio.Semaphore
    wanted: int = 0


class Shares:
    """A pool of `size` connections: one tenant has about three quarters of it, and waits behind itself for more.

    Two at least are left where there are four: one may be held by those who wait for an end (`Prefer: wait`).
    """

    def __init__(self, size: int) -> None:
        self.most = max(1, size - 1 - size // 4)
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        """Tenants that have a place or wait for one."""
        return len(self._shares)

    async def acquire(self, tenant: str, seconds: float) -> Callable[[], None]:
        """Wait for a slot; returns the function that releases it, to be called once. Raises TimeoutError after
        `seconds`."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = _Share(asyncio.Semaphore(self.most))
        share.wanted += 1
        try:
            if share.free.locked():
                async with asyncio.timeout(seconds):
                    await share.free.acquire()
            else:
                await share.free.acquire()  # at once
        except BaseException:
            self._leave(tenant, share)
            raise
        return partial(self._give_back, tenant, share)

    def _give_back(self, tenant: str, share: _Share) -> None:
        share.free.release()
        self._leave(tenant, share)

    def _leave(self, tenant: str, share: _Share) -> None:
        share.wanted -= 1
        if not share.wanted:
            self._shares.pop(tenant, None)
