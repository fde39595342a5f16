"""The start of a daemon: repeat its checks of the database until they pass.

A restart during an outage is normal, whichever connection is lost. A permanent refusal by the server ends the start at
once. libpq gives no SQLSTATE for a refused connection, and its text is in the server's language. libpq's own ping,
which uses the SQLSTATE, shows whether the server accepts connections.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from idem.outbox.database.address import Address
    from idem.outbox.database.bounded import BoundedConnection

REFUSALS: Final = 4
"""Consecutive refusals by a server that accepts connections, after which the cause is not a lost connection."""
PING: Final = 5
"""Timeout of one ping, in seconds."""


METRICS: Final = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
"""The two variables that make prometheus_client write into a folder."""


def own_metrics() -> None:
    """Keep this process from writing metrics into another installation's folder. Call it before the metrics are
    imported.

    A supervisor serves no metrics and gives its daemons a folder of its own; a single process keeps them in memory.
    """
    for name in METRICS:
        os.environ.pop(name, None)


async def ready(
    address: Address, name: str, seconds: float, checks: Callable[[BoundedConnection], Awaitable[None]]
) -> None:
    """Run `checks` until they pass, for at most `seconds`; raises their error if it is permanent or the time is over.

    They get a connection that has none of idem's settings yet. If that connection was made, an error is a broken line;
    if not, it may be a server that refuses.
    """
    import psycopg

    from idem.outbox.daemon.retry import RetryLoop
    from idem.outbox.database import session

    retry, never, refused = RetryLoop(name), asyncio.Event(), 0
    until = asyncio.get_running_loop().time() + seconds
    while True:
        connected = False
        try:
            async with await session.bare(address, name=f"idem {name}") as connection:
                connected = True
                await checks(connection)
            retry.over()
            return
        except (psycopg.Error, OSError) as error:
            if not passes(error):
                raise
            refused = 0 if connected or not await takes_connections(address) else refused + 1
            if refused >= REFUSALS or asyncio.get_running_loop().time() > until or seconds <= 0:
                raise
            await retry.wait_after(error, never)


def passes(error: BaseException) -> bool:
    """Whether this database error may be temporary: a lost connection, a server that starts or is full."""
    import psycopg

    from idem.outbox.database.pool import AWAY, REFUSED
    from idem.outbox.database.server_errors import away

    if isinstance(error, psycopg.Error):
        return away(error) is not None or isinstance(error, REFUSED)
    return isinstance(error, AWAY)


async def takes_connections(address: Address) -> bool:
    """Whether the server accepts connections at all; it does not while it starts or stops."""
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import PGconn, Ping

    try:
        conninfo = make_conninfo(address.now(), connect_timeout=PING)
    except OSError:
        return False
    return await asyncio.to_thread(PGconn.ping, conninfo.encode()) == Ping.OK
