"""Bodies that cost more than a moment are read in a thread, so that the loop goes on; one at a time for each tenant.

A thread frees the loop only between two steps of Python: json.loads reads a text in one. So a body has a greatest size
and a greatest number of values, and no single step takes long. What is parsed lives in that thread alone: no request
may keep it while it waits for its turn or for the database.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from idem.outbox.config import schema_cost
from idem.outbox.tenants.keyed_lock import KeyedLock
from idem.outbox.values.threads import Aside, whole

LIGHT: Final = 4096
"""Bytes of a body that is read at once: fewer than a change of threads is worth."""

Made = TypeVar("Made")


class Heavy:
    """One thread, of this name, for heavy bodies of a process. A tenant that sends many waits behind itself alone."""

    def __init__(self, thread: str = "idem body") -> None:
        self._aside = Aside(thread)
        self._turns = KeyedLock()

    async def run(self, tenant: str, size: int, work: Callable[[], Made]) -> Made:
        """The result of `work` on a body of `size` bytes. Raises what `work` raises."""
        if size <= LIGHT:
            try:
                with schema_cost.at_once():
                    return whole(work)
            except schema_cost.NotAtOnce:
                pass  # few bytes, and much work for the operation's schema: begin again in the thread
        async with self._turns.holding(tenant):
            return await self._aside.begin(work)


HEAVY: Final = Heavy()
"""The bodies of this process's clients, who are known: two APIs in it share the one interpreter too."""

UNVERIFIED: Final = Heavy("idem event")
"""Deliveries of providers' events, whose sender is not known: a thread of their own, so that no client waits for it."""
