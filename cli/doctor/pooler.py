"""A pooler before the server: whether notifications arrive, and whether a session stays ours (IB-059)."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection, sql

from idem.cli.base.time_limit import statement_timeout
from idem.cli.doctor.examination import Examination, close
from idem.cli.doctor.findings import Findings, error, ok, warning
from idem.outbox.database import pooler as way

HEARD_WITHIN = 3.0
"""Seconds within which a notification must arrive."""


async def pooler(examination: Examination) -> Findings:
    """Open two connections: one listens and the other notifies; then one keeps a transaction open while the other
    queries.
    """
    async with _opened(examination) as ours, _opened(examination) as other:
        behind = await way.behind(ours)
        heard = await _heard(ours, other)
        # If it does not answer while the other session is busy, the pooler uses one server connection for both.
        shared = await _asked(ours, other) is not False
    if shared:
        yield error(way.WHAT, way.DO)
    if not heard:
        yield warning(
            f"a notification did not arrive within {HEARD_WITHIN:g} s: workers find new rows only by polling, up "
            "to worker.poll later",
            "LISTEN needs its own session: connect directly to the server, or use the pooler's session mode",
            "notify",
        )
    elif not shared:
        how = "through a pooler that keeps sessions" if behind else "directly"
        yield ok(f"connected {how}; a notification arrived")


@contextlib.asynccontextmanager
async def _opened(examination: Examination) -> AsyncIterator[AsyncConnection[Any]]:
    connection = await examination.connect()
    try:
        yield connection
    finally:
        await close(connection)


async def _heard(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool:
    # Not the workers' channel, so the probe wakes no worker.
    channel = f"idem_doctor_{uuid4().hex}"
    await ours.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    await other.execute("SELECT pg_notify(%s, '')", (channel,))
    heard = False
    async for _ in ours.notifies(timeout=HEARD_WITHIN, stop_after=1):
        heard = True
    await ours.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
    return heard


async def _asked(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool | None:
    try:
        async with statement_timeout(ours, way.PATIENCE):
            return await way.shares_servers(ours, other)
    except TimeoutError:
        return None
