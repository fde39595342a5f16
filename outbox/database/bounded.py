"""A connection whose every wait has a bound of this process's own.

The server's statement_timeout ends no wait on a line that says nothing: a pooler or a balancer that hangs, a server
whose disk has stopped. Its kernel goes on acknowledging, so neither keepalives nor `tcp_user_timeout` notice.
"""

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import psycopg
from psycopg import AsyncConnection, Connection

from idem.outbox.database.server_errors import DatabaseAway, away

SILENCE: Final = 40.0
"""Seconds for a line whose user has named no bound."""

TICK: Final = 0.25
"""Seconds between two checks of the blocking waits that are under way."""

IDLE: Final = 40
"""Looks without any, after which the thread that looks ends."""


class BoundedConnection(AsyncConnection[Any]):
    """Cut after `silence` seconds without an answer, and every error of a lost or useless connection is `DatabaseAway`.

    The line is cut instead of the task: a cancelled statement would be followed by a ROLLBACK, which waits on a silent
    line for ever.
    """

    silence: float = SILENCE
    served_by: int | None = None
    """The server's process, as it has said itself. A pooler names another one when a session begins."""
    _heard: float = float("-inf")
    _bound: float | None = None
    _timer: asyncio.TimerHandle | None = None
    _late: list[float]
    prepared: set[bytes]
    """The names of the statements that it has prepared (`prepared`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared = set()

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect; every failure of that is `DatabaseAway`."""
        try:
            return await super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            if (lost := away(error)) is None:
                raise
            raise lost from error

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        """psycopg comes here for everything that it sends: each statement, BEGIN and COMMIT, each wait for notices."""
        # psycopg looks up ten times a second by itself, for which nothing here has a use.
        kwargs.setdefault("interval", self.silence + 1.0)
        return await self.answered(super().wait(*args, **kwargs))

    async def answered(self, waiting: Awaitable[Any], seconds: float | None = None) -> Any:
        """What is waited for on this line, for at most so many seconds, where they are said."""
        late: list[float] = []
        self._late = late
        bound = min(self.silence, self._bound or self.silence, seconds or self.silence)
        self._timer = timer = self._cut_in(bound, late)
        try:
            answered = await waiting
            self._heard = time.monotonic()
            return answered
        except psycopg.Error as error:
            if late:
                raise DatabaseAway(silent(late[0])) from error
            if (lost := away(error, closed=self.closed)) is not None:
                raise lost from error
            raise
        finally:
            timer.cancel()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def has_answered(self, within: float) -> bool:
        """Whether it has answered in the last so many seconds, and the server has sent nothing since: one that ends a
        session says so, or closes the line.
        """
        if self.closed or time.monotonic() - self._heard > within:
            return False
        line = select.poll()
        line.register(self.fileno(), select.POLLIN)
        return not line.poll(0)

    def hasten(self, seconds: float) -> None:
        """From now on no wait lasts longer than so many seconds; the one that is under way neither."""
        self.silence = min(seconds, self.silence)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._cut_in(min(self.silence, self._bound or self.silence), self._late)

    @contextlib.contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Within this block no wait lasts longer than so many seconds."""
        # Beside `silence`, which `hasten` may lower meanwhile.
        before, self._bound = self._bound, seconds
        try:
            yield
        finally:
            self._bound = before

    def _cut_in(self, seconds: float, late: list[float]) -> asyncio.TimerHandle:
        def over() -> None:
            late.append(seconds)
            cut(self)

        return asyncio.get_running_loop().call_later(seconds, over)


class BlockingConnection(Connection[Any]):
    """The same for synchronous code, whose thread would otherwise wait without a limit."""

    silence: float = SILENCE

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect; every failure of that is `DatabaseAway`."""
        try:
            return super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            if (lost := away(error)) is None:
                raise
            raise lost from error

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """psycopg comes here for everything that it sends."""
        watched = _watch.begin(self, self.silence)
        try:
            return super().wait(*args, **kwargs)
        except psycopg.Error as error:
            if watched.late:
                raise DatabaseAway(silent(self.silence)) from error
            if (lost := away(error, closed=self.closed)) is not None:
                raise lost from error
            raise
        finally:
            _watch.end(watched)


@dataclass(slots=True, eq=False)
class _Watched:
    line: BlockingConnection
    ends: float
    late: bool = False


class _SilenceWatch:
    """One thread for all blocking waits of this process; it lives as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: set[_Watched] = set()
        self._thread: threading.Thread | None = None

    def begin(self, line: BlockingConnection, seconds: float) -> _Watched:
        watched = _Watched(line, time.monotonic() + seconds)
        with self._lock:
            self._waits.add(watched)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="idem-lines", daemon=True)
                self._thread.start()
        return watched

    def end(self, watched: _Watched) -> None:
        with self._lock:
            self._waits.discard(watched)

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK)
            with self._lock:
                now = time.monotonic()
                for each in self._waits:
                    if not each.late and now >= each.ends:
                        each.late = True
                        cut(each.line)
                idle = 0 if self._waits else idle + 1
                if idle > IDLE:
                    self._thread = None
                    return


_watch = _SilenceWatch()


def silent(seconds: float) -> str:
    """The message for a connection that was closed because it was silent."""
    return f"the database has not answered for {seconds:g} s: the connection is closed"


def cut(connection: psycopg.BaseConnection[Any]) -> None:
    """Close a connection from this side: a waiting statement fails at once."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
