"""Bounded waits for a database over a connection that may be dead."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from psycopg import AsyncConnection


@contextlib.asynccontextmanager
async def statement_timeout(connection: AsyncConnection[Any], seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError if the body takes longer than `seconds`; the connection is then closed.

    It closes the connection instead of cancelling the task, because psycopg would follow the cancelled statement with
    a ROLLBACK, which never ends on a dead connection.
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
