"""The start of a daemon: everything that it asks of the database before it works, until that goes through.

A restart in the middle of an outage is no mistake, at whichever of its connections the line is cut. What a server
refuses for good ends the start at once. A refused connection has no SQLSTATE in libpq, and its text is in the server's
language: whether the server takes connections is asked by libpq's own ping, which goes by the SQLSTATE.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from idem.outbox.database.address import Address

REFUSALS: Final = 4
"""Connections in a row that a server which takes connections has not let in: after those it is no cut line."""
PING: Final = 5
"""Seconds for one ping."""


METRICS: Final = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
"""What has prometheus_client write into a folder, in both of the forms that it knows."""


def own_metrics() -> None:
    """Have no metrics of this process written into a folder of somebody else's. Nothing may have loaded them yet.

    A supervisor serves none, and gives its daemons a folder of its own; a process that is alone keeps them in memory.
    """
    for name in METRICS:
        os.environ.pop(name, None)


async def ready(address: Address, name: str, seconds: float, checks: Callable[[], Awaitable[None]]) -> None:
    """Run `checks` until they go through, for `seconds` at the most; raises what they raise if it will not pass.

    The first connection is this function's own, so that it knows refused connections from lost ones.
    """
    import psycopg
    from sqlalchemy.exc import DBAPIError

    from idem.outbox.daemon.daemon import Trouble
    from idem.outbox.database import session

    trouble, never, refused = Trouble(name), asyncio.Event(), 0
    until = asyncio.get_running_loop().time() + seconds
    while True:
        connected = False
        try:
            async with await session.bare(address, name=f"idem {name}"):
                connected = True
            await checks()
            trouble.over()
            return
        except (psycopg.Error, DBAPIError, OSError) as error:
            original = error.orig if isinstance(error, DBAPIError) else error
            if not passes(original):
                raise
            refused = 0 if connected or not await takes_connections(address) else refused + 1
            if refused >= REFUSALS or asyncio.get_running_loop().time() > until or seconds <= 0:
                raise
            await trouble.away(original or error, never)


def passes(error: BaseException | None) -> bool:
    """Whether this error of the database may be over by itself: a lost line, a server that starts or is full."""
    import psycopg

    from idem.outbox.database.pool import AWAY, REFUSED
    from idem.outbox.database.server_errors import away

    if isinstance(error, psycopg.Error):
        return away(error) is not None or isinstance(error, REFUSED)
    return isinstance(error, AWAY)


async def takes_connections(address: Address) -> bool:
    """Whether a server is there that takes connections, of whomever; while it starts or ends it does not."""
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import PGconn, Ping

    try:
        conninfo = make_conninfo(address.now(), connect_timeout=PING)
    except OSError:
        return False
    return await asyncio.to_thread(PGconn.ping, conninfo.encode()) == Ping.OK
