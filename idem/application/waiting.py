"""Waiting for the end of a request, on the caller's own database; never inside a transaction of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from idem.application import statements
from idem.application.connections import ConnectionAdapter, PsycopgAdapter
from idem.application.keyed_request import KeyedRequest
from idem.outbox.accept.status import RequestIdentity, Status
from idem.outbox.accept.waiting import FIRST, GROWTH, Patience, Seen, Waiting
from idem.outbox.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine

POLL: Final = 0.25
"""Seconds between two polls of all asynchronous waiters of an engine."""
LONGEST_POLL: Final = 10.0
"""Seconds for one look, its connection included: a database that does not answer holds up a waiter no longer."""


def wait(adapter: ConnectionAdapter, request: KeyedRequest, seconds: float, *, ours: bool) -> Status | None:
    """The end of a request, or how it stands after `seconds`; None: its key is not there.

    `ours` as in `Patience`. Raises StoreUnavailable if the database cannot say until then.
    """
    return Patience(seconds, ours=ours).wait(lambda: _poll_once(adapter, request))


async def wait_async(adapter: ConnectionAdapter, request: KeyedRequest, seconds: float, *, ours: bool) -> Status | None:
    """The same, for an asynchronous engine."""
    from idem.application.sqlalchemy_connections import SQLAlchemyAdapter

    assert isinstance(adapter, SQLAlchemyAdapter)
    if seconds > 0 and adapter.connection.closed:
        return await _watch(adapter.connection.engine).wait(
            adapter.connection.engine, request.identity, seconds, ours=ours
        )
    # A connection that its caller keeps is used again: a pool of which each waiter keeps one has none for a watch.
    return await Patience(seconds, ours=ours).wait_async(lambda: _poll_async(adapter, request))


def _poll_once(adapter: ConnectionAdapter, request: KeyedRequest) -> Seen:
    try:
        with _reading(adapter) as reader:
            return statements.read_status(reader, request)
    except Exception as error:
        if _mistake(error):
            raise
        return away(error)


async def _poll_async(adapter: ConnectionAdapter, request: KeyedRequest) -> Seen:
    from sqlalchemy.util import greenlet_spawn

    try:
        async with asyncio.timeout(LONGEST_POLL):
            return await greenlet_spawn(_poll_once, adapter, request)
    except TimeoutError as error:
        return away(error)


def _mistake(error: Exception) -> bool:
    """No right to read, no such table, a bug: another look does not help."""
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
    if not isinstance(adapter.database, str):
        from idem.application.sqlalchemy_connections import SQLAlchemyAdapter

        assert isinstance(adapter, SQLAlchemyAdapter)
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


def _asynchronous(engine: Engine) -> Any:
    from sqlalchemy.ext.asyncio import AsyncEngine

    return AsyncEngine(engine)


_watches: WeakKeyDictionary[Engine, Watch] = WeakKeyDictionary()


def _watch(engine: Engine) -> Watch:
    watch = _watches.get(engine)
    if watch is None or watch.loop is not asyncio.get_running_loop():
        watch = _watches[engine] = Watch()
    return watch


class Watch:
    """All waiters of one engine in one event loop. It looks only while there are any."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, engine: Engine, request: RequestIdentity, seconds: float, *, ours: bool) -> Status | None:
        """As `wait_async`. Raises StoreUnavailable if the database cannot say."""
        if self._polling is None or self._polling.done():
            # The task alone knows the engine: one that is not used any more may go, and this with it.
            self._polling = asyncio.create_task(self._run(engine))
        try:
            async with asyncio.timeout(seconds + LONGEST_POLL):
                return await self._waiting.wait(request, seconds, ours=ours)
        except TimeoutError as error:
            raise away(error) from None

    async def _run(self, engine: Engine) -> None:
        pause = FIRST
        while self._waiting:
            try:
                async with asyncio.timeout(LONGEST_POLL):
                    await self._poll_once(engine)
            except Exception as error:
                self._give_up(error)
            await asyncio.sleep(pause)
            pause = min(pause * GROWTH, POLL)

    def _give_up(self, error: Exception) -> None:
        if _mistake(error):
            self._waiting.give_up(lambda: error, everyone=True)
        else:
            self._waiting.give_up(lambda: away(error))

    async def _poll_once(self, engine: Engine) -> None:
        from sqlalchemy import text

        async with _asynchronous(engine).connect() as connection, connection.begin():

            async def rows(statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
                found: Sequence[Any] = (await connection.execute(text(statement), dict(values))).all()
                return found

            await self._waiting.poll(rows)
