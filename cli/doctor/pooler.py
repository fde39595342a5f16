"""What stands between us and the server: whether a notification is heard, and whether a session stays ours (IB-059)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection, sql

from idem.cli.doctor.examination import Examination
from idem.cli.doctor.findings import CheckResult, error, ok, warning
from idem.cli.patience import within
from idem.outbox.database import pooler as way

HEARD_WITHIN = 3.0
"""Seconds in which a notification must come back."""


async def pooler(examination: Examination) -> list[CheckResult]:
    """Two connections of our own: one listens and the other notifies; then one holds while the other asks again."""
    async with _opened(examination) as ours, _opened(examination) as other:
        behind = await way.behind(ours)
        heard = await _heard(ours, other)
        # One that does not answer while another session is at work has a single server for both.
        shared = await _asked(ours, other) is not False
    findings = []
    if shared:
        findings.append(
            error(
                "pooler",
                way.WHAT,
                way.DO,
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


async def _asked(ours: AsyncConnection[Any], other: AsyncConnection[Any]) -> bool | None:
    try:
        async with within(ours, way.PATIENCE):
            return await way.shares_servers(ours, other)
    except TimeoutError:
        return None
