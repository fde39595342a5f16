"""Bounded waits for a database at the other end of a line that may be dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from psycopg import AsyncConnection


@contextlib.asynccontextmanager
async def within(connection: AsyncConnection[Any], seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError when the body takes longer than `seconds`, and the connection is lost then.

    The line is cut instead of the task: a cancelled statement would be followed by a ROLLBACK, which waits on a dead
    line for ever.
    """
    late = False

    def cut() -> None:
        nonlocal late
        late = True
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(seconds, cut)
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if late:
            raise TimeoutError(f"the database did not answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
