"""Waiting for the end of requests. It only reads: it never takes up a key, so a waiter that goes away changes nothing.

`Waiting` serves all waiters of an event loop by one repeated look. `Patience` is for one, on a connection of its own.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from idem.outbox.accept.status import ENDED, KEYS_A_STATEMENT, STATUS, RequestIdentity, Status, columns, status_of
from idem.outbox.domain.decisions import InProgress, Unknown
from idem.outbox.values.errors import StoreUnavailable

FIRST: Final = 0.05
"""Seconds until the second look."""
LONGEST: Final = 0.5
"""Seconds between two polls of one waiter: they grow to it."""
GROWTH: Final = 1.5

Rows: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Sequence[Any]]]
"""The rows of a statement with `:name` parameters, with their columns as attributes."""
Seen: TypeAlias = Status | StoreUnavailable | None
"""How a request stands. None: its key is not there. StoreUnavailable: the database did not say."""


class Patience:
    """One waiter that looks by itself, again and again until the request has ended or `seconds` are over.

    `ours`: this call has committed the key, or no call has; else another transaction may still be about to.
    """

    def __init__(self, seconds: float, *, ours: bool) -> None:
        self._until = time.monotonic() + seconds
        self._ours = ours
        self._pause = FIRST

    def wait(self, poll: Callable[[], Seen]) -> Status | None:
        """What the last look saw. Raises StoreUnavailable if the database did not say it then."""
        while True:
            if self._enough(seen := poll()):
                return _said(seen)
            time.sleep(self._next())

    async def wait_async(self, poll: Callable[[], Awaitable[Seen]]) -> Status | None:
        """The same, for a look that is awaited."""
        while True:
            if self._enough(seen := await poll()):
                return _said(seen)
            await asyncio.sleep(self._next())

    def _enough(self, seen: Seen) -> bool:
        if self._left() <= 0:
            return True
        return self._ours if seen is None else not isinstance(seen, InProgress | Unknown | StoreUnavailable)

    def _next(self) -> float:
        pause, self._pause = self._pause, min(self._pause * GROWTH, LONGEST)
        return max(0.0, min(pause, self._left()))

    def _left(self) -> float:
        return self._until - time.monotonic()


def _said(seen: Seen) -> Status | None:
    if isinstance(seen, StoreUnavailable):
        raise seen
    return seen


@dataclass(slots=True)
class _Waiter:
    until: float
    ours: bool
    end: asyncio.Future[Status | None]
    new: bool = True


class Waiting:
    """All waiters of one event loop at one database. Its owner looks again and again, while there are any."""

    def __init__(self) -> None:
        self._waiters: dict[RequestIdentity, list[_Waiter]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())

    @property
    def requests(self) -> int:
        """How many different requests are waited for."""
        return len(self._waiters)

    async def wait(self, request: RequestIdentity, seconds: float, *, ours: bool) -> Status | None:
        """The end of a request, or how it stands after `seconds`; None: its key is not there. Raises what `give_up` is
        given. `ours` as in `Patience`."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.time() + seconds, ours, loop.create_future())
        self._waiters[request].append(waiter)
        try:
            return await waiter.end
        finally:
            waiters = self._waiters[request]
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[request]

    async def poll(self, rows: Rows) -> None:
        """Look once for all, and answer those who can be answered."""
        # Who comes while it looks has perhaps committed after it: the next look is theirs.
        here = {request: list(waiters) for request, waiters in self._waiters.items()}
        requests = list(here)
        everything = columns(requests)
        del everything["fingerprints"]
        ended = {requests[row.number] for row in await rows(ENDED, everything)}
        now = asyncio.get_running_loop().time()
        asked = iter(
            request
            for request, waiters in here.items()
            if request in ended or any(each.until <= now or (each.new and each.ours) for each in waiters)
        )
        while chunk := list(islice(asked, KEYS_A_STATEMENT)):
            found = {chunk[row.number]: status_of(row) for row in await rows(STATUS, columns(chunk))}
            for request in chunk:
                self._answer(here[request], found.get(request), request in ended)

    def hurry(self) -> None:
        """The time of all is over: the next look answers them."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.until = 0.0

    def give_up(self, error: Callable[[], Exception], *, everyone: bool = False) -> None:
        """The look failed: those whose time is over get this error, or all."""
        now = asyncio.get_running_loop().time()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.end.done() and (everyone or waiter.until <= now):
                    waiter.end.set_exception(error())

    @staticmethod
    def _answer(waiters: Sequence[_Waiter], seen: Status | None, final: bool) -> None:
        now = asyncio.get_running_loop().time()
        for waiter in waiters:
            waiter.new = False
            absent = seen is None and waiter.ours
            if not waiter.end.done() and (final or absent or waiter.until <= now):
                waiter.end.set_result(seen)
