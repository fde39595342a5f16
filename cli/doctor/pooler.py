"""What stands between us and the server: whether a notification is heard, and whether a session stays ours (IB-059)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection, sql

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import Finding, error, ok, warning
from idem.cli.patience import within

HEARD_WITHIN = 3.0
"""Seconds in which a notification must come back."""
PROBE = 5.0
"""Seconds for each question to a pooler: one with a single connection makes us wait for ourselves."""

BACKEND = "SELECT pg_backend_pid()"


async def pooler(examination: Examination) -> list[Finding]:
    """Two connections of our own: one listens and the other notifies; then one holds while the other asks again."""
    async with _opened(examination) as ours, _opened(examination) as other:
        behind = ours.info.backend_pid != await _backend(ours)
        heard = await _heard(ours, other)
        shared = await _shared(ours, other)
    findings = []
    if shared:
        findings.append(
            error(
                "pooler",
                "a pooler in transaction mode stands before the database: consecutive statements of one session run "
                "on different servers, so idem's own settings (timeouts, durable commits) and prepared statements are "
                "lost, and left to others",
                "Give idem the database's own address, or a pool in session mode (PgBouncer: pool_mode = session)",
            )
        )
    if not heard:
        findings.append(
            warning(
                "notify",
                f"a notification was not heard within {HEARD_WITHIN:g} s: workers find new rows by polling alone, up "
                "to worker.poll later",
                "LISTEN needs a session of its own: connect past the pooler, or use its session mode",
            )
        )
    if not findings:
        how = "through a pooler that keeps sessions" if behind else "directly"
        findings.append(ok("pooler", f"connected {how}; a notification was heard"))
    return findings


@contextlib.asynccontextmanager
async def _opened(examination: Examination) -> AsyncIterator[AsyncConnection[Any]]:
    connection = await examination.connect()
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await connection.close()


async def _heard(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool:
    # Not the workers' channel: nobody is woken by a probe.
    channel = f"idem_doctor_{uuid4().hex}"
    await ours.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    await other.execute("SELECT pg_notify(%s, '')", (channel,))
    heard = False
    async for _ in ours.notifies(timeout=HEARD_WITHIN, stop_after=1):
        heard = True
    await ours.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
    return heard


async def _shared(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool:
    before = await _backend(ours)
    try:
        async with within(ours, PROBE), other.transaction():
            # A pooler in transaction mode gives it the server that we had, and us another one, or none.
            if await _backend(other) == before:
                return True
            return await _backend(ours) != before
    except (TimeoutError, psycopg.OperationalError):
        return True


async def _backend(connection: AsyncConnection[Any]) -> int:
    row = await (await connection.execute(BACKEND)).fetchone()
    return int(row[0]) if row else 0
