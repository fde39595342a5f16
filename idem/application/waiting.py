"""Waiting for the end of a request, on the caller's own database: many asynchronous waiters by one repeated look.

Waiting reads only, and never inside a transaction of the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, text
from sqlalchemy.util import greenlet_spawn

from idem.application import statements
from idem.application.connections import ConnectionAdapter, PsycopgAdapter, SQLAlchemyAdapter
from idem.application.keyed_request import KeyedRequest
from idem.outbox.accept import status
from idem.outbox.accept.status import ENDED, KEYS_A_STATEMENT, STATUS, Status
from idem.outbox.domain.decisions import InProgress, Unknown
from idem.outbox.values.errors import StoreUnavailable

POLL: Final = 0.25
"""Seconds between two looks of all asynchronous waiters of a process."""
FIRST, LONGEST = 0.05, 0.5
"""Seconds between two looks of one synchronous waiter: they grow."""
LONGEST_LOOK: Final = 10.0
"""Seconds for one look, its connection included: a database that does not answer keeps nobody for ever."""


def wait(adapter: ConnectionAdapter, request: KeyedRequest, seconds: float, *, ours: bool) -> Status | None:
    """The end of a request, or how it stands after `seconds`; None: its key is not there.

    `ours`: this call has committed it, or nobody; else another transaction may still be about to. Raises
    StoreUnavailable if the database cannot say until then.
    """
    until, pause = time.monotonic() + seconds, FIRST
    while True:
        seen = _look(adapter, request)
        left = until - time.monotonic()
        if left <= 0 or _enough(seen, ours):
            return _said(seen)
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST)


def _look(adapter: ConnectionAdapter, request: KeyedRequest) -> Status | StoreUnavailable | None:
    try:
        with _reading(adapter) as reader:
            return statements.stand(reader, request)
    except Exception as error:
        if _mistake(error):
            raise
        return away(error)


def _enough(seen: Status | StoreUnavailable | None, ours: bool) -> bool:
    return ours if seen is None else not isinstance(seen, InProgress | Unknown | StoreUnavailable)


def _said(seen: Status | StoreUnavailable | None) -> Status | None:
    if isinstance(seen, StoreUnavailable):
        raise seen
    return seen


def _mistake(error: Exception) -> bool:
    """No right to read, no such table, a bug: asking again is no use."""
    names = {each.__name__ for each in type(error).__mro__}
    return bool(names & {"ProgrammingError", "AssertionError", "TypeError", "AttributeError"})


def away(cause: BaseException) -> StoreUnavailable:
    """What is raised where the database cannot say how a request stands."""
    found = StoreUnavailable("the database cannot say how this request stands: ask again, same key")
    found.__cause__ = cause
    return found


@contextmanager
def _reading(adapter: ConnectionAdapter) -> Iterator[ConnectionAdapter]:
    """A connection to look with, outside of the caller's transaction."""
    if isinstance(adapter, SQLAlchemyAdapter):
        # A connection that its caller still has is used again: in a small pool there may be no other.
        own = adapter.connection
        if not (own.closed or own.invalidated or own.in_transaction()):
            with own.begin():
                yield SQLAlchemyAdapter(own)
            return
        with own.engine.connect() as connection, connection.begin():
            yield SQLAlchemyAdapter(connection)
    elif isinstance(adapter, PsycopgAdapter):
        try:
            yield adapter
        finally:
            # Its own look may have begun a transaction.
            if not (adapter.connection.closed or adapter.connection.autocommit):
                adapter.connection.rollback()
    else:
        yield adapter


async def wait_async(adapter: ConnectionAdapter, request: KeyedRequest, seconds: float, *, ours: bool) -> Status | None:
    """The same, for an asynchronous engine."""
    assert isinstance(adapter, SQLAlchemyAdapter)
    if seconds > 0 and adapter.connection.closed:
        return await _watch(adapter.connection.engine).wait(adapter.connection.engine, request, seconds, ours=ours)
    # A connection that its caller keeps is used again: a pool of which each waiter keeps one has none for a watch.
    until, pause = time.monotonic() + seconds, FIRST
    while True:
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                seen = await greenlet_spawn(_look, adapter, request)
        except TimeoutError as error:
            seen = away(error)
        left = until - time.monotonic()
        if left <= 0 or _enough(seen, ours):
            return _said(seen)
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST)


def _asynchronous(engine: Engine) -> Any:
    from sqlalchemy.ext.asyncio import AsyncEngine

    return AsyncEngine(engine)


_watches: WeakKeyDictionary[Engine, Watch] = WeakKeyDictionary()


def _watch(engine: Engine) -> Watch:
    watch = _watches.get(engine)
    if watch is None or watch.loop is not asyncio.get_running_loop():
        watch = _watches[engine] = Watch()
    return watch


@dataclass(slots=True)
class _Waiter:
    until: float
    ours: bool
    end: asyncio.Future[Status | None]
    new: bool = True


class Watch:
    """All waiters of one engine in one event loop. It looks only while somebody waits."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, str, str, str], list[_Waiter]] = defaultdict(list)
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, engine: Engine, request: KeyedRequest, seconds: float, *, ours: bool) -> Status | None:
        """The end of a request, or how it stands after `seconds`. Raises StoreUnavailable if nobody can say."""
        waiter = _Waiter(self.loop.time() + seconds, ours, self.loop.create_future())
        self._waiting[request.identity].append(waiter)
        if self._looking is None or self._looking.done():
            # The task alone knows the engine: one that is not used any more may go, and this with it.
            self._looking = asyncio.create_task(self._run(engine))
        try:
            async with asyncio.timeout(seconds + LONGEST_LOOK):
                return await waiter.end
        except TimeoutError as error:
            raise away(error) from None
        finally:
            waiters = self._waiting[request.identity]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[request.identity]

    async def _run(self, engine: Engine) -> None:
        pause = FIRST
        while self._waiting:
            try:
                async with asyncio.timeout(LONGEST_LOOK):
                    await self._look(engine)
            except Exception as error:
                self._give_up(error)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL)

    async def _look(self, engine: Engine) -> None:
        # Who comes while it looks has perhaps committed after it: the next look is theirs.
        here = {request: list(waiters) for request, waiters in self._waiting.items()}
        wishes = list(here)
        async with _asynchronous(engine).connect() as connection, connection.begin():
            everything = status.columns(wishes)
            del everything["fingerprints"]
            moved = {wishes[row.number] for row in await connection.execute(text(ENDED), everything)}
            now = self.loop.time()
            over = {
                request for request, waiters in here.items() if any(each.new or each.until <= now for each in waiters)
            }
            asked = iter([request for request in wishes if request in moved or request in over])
            while chunk := list(islice(asked, KEYS_A_STATEMENT)):
                rows = await connection.execute(text(STATUS), status.columns(chunk))
                stand = {chunk[row.number]: status.status_of(row) for row in rows}
                for request in chunk:
                    self._tell(here[request], stand.get(request), request in moved)

    def _tell(self, waiters: list[_Waiter], end: Status | None, final: bool) -> None:
        now = self.loop.time()
        for waiter in waiters:
            waiter.new = False
            absent = end is None and waiter.ours
            if not waiter.end.done() and (final or absent or waiter.until <= now):
                waiter.end.set_result(end)

    def _give_up(self, error: Exception) -> None:
        now = self.loop.time()
        for waiters in self._waiting.values():
            for waiter in waiters:
                if waiter.end.done():
                    continue
                if _mistake(error):
                    waiter.end.set_exception(error)
                elif waiter.until <= now:
                    waiter.end.set_exception(away(error))
