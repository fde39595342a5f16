"""A connection whose every wait has a bound of this process's own.

The server's statement_timeout ends no wait on a line that says nothing: a pooler or a balancer that hangs, a server
whose disk has stopped. Its kernel goes on acknowledging, so neither keepalives nor `tcp_user_timeout` notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any, Final, Self

import psycopg
from psycopg import AsyncConnection

from idem.outbox.connecting.failing import DatabaseAway, away

SILENCE: Final = 40.0
"""Seconds for a line whose user has named no bound."""


class Line(AsyncConnection[Any]):
    """Cut after `silence` seconds without an answer, and every error of a lost or useless connection is `DatabaseAway`.

    The line is cut instead of the task: a cancelled statement would be followed by a ROLLBACK, which waits on a silent
    line for ever.
    """

    silence: float = SILENCE

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
        late: list[float] = []
        timer = asyncio.get_running_loop().call_later(self.silence, self._cut, late, self.silence)
        try:
            return await super().wait(*args, **kwargs)
        except psycopg.Error as error:
            if late:
                raise DatabaseAway(f"the database has said nothing for {late[0]:g} s: the line is given up") from error
            if (lost := away(error, closed=self.closed)) is not None:
                raise lost from error
            raise
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Within this block no wait lasts longer than so many seconds."""
        before, self.silence = self.silence, min(seconds, self.silence)
        try:
            yield
        finally:
            self.silence = before

    def _cut(self, late: list[float], after: float) -> None:
        late.append(after)
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
