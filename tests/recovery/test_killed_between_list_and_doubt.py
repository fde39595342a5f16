"""`idem recover --lost` that is killed, or loses its connection, at any statement: everything is listed, or nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from fix_desk import Desk
from fix_sql import query
from fix_waiting import until

IDEM = str(Path(sys.executable).with_name("idem"))
BLOCKED = {
    "before the list": "LOCK TABLE idem.doubts IN SHARE MODE",
    "between the list and the word": "LOCK TABLE idem.installation IN SHARE MODE",
    "between two pages": "LOCK TABLE idem.evidence IN SHARE MODE",
}
WAITS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'idem%%'
   AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def recovering(desk: Desk, blocked: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The command as a process that stands still there, and its backend."""
    async with asyncio.timeout(120):
        with psycopg.connect(desk.spine.url) as other:
            other.execute(BLOCKED[blocked])
            process = await asyncio.create_subprocess_exec(
                IDEM, "recover", "--lost", "--reason", "restored", "--yes", env={**os.environ, **desk.environment},
                stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                await until(lambda: desk.spine.all(WAITS), "the statement that waits")
                (backend,) = [row["pid"] for row in await desk.spine.all(WAITS)]
                yield process, backend
            finally:
                if process.returncode is None:
                    process.kill()
                await process.communicate()
                other.rollback()


@pytest.mark.parametrize("how", ["killed", "its connection is closed"])
@pytest.mark.parametrize("blocked", BLOCKED)
async def test_every_row_is_listed_or_none(desk: Desk, superuser_url: str, blocked: str, how: str) -> None:
    intents = [desk.spine.accepted(key, operation="pay.keyless") for key in "abc"]
    async with recovering(desk, blocked) as (process, backend):
        if how == "killed":
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        query(superuser_url, "SELECT pg_terminate_backend(%(pid)s)", {"pid": backend})
        _, told = await process.communicate()
        if how != "killed":
            assert process.returncode not in (0, None) and b"Traceback" not in told
    await until(lambda: not query(desk.spine.url, "SELECT FROM pg_stat_activity WHERE pid = %s", [backend]))
    listed = await desk.spine.all("SELECT FROM idem.doubts")
    said = (await desk.spine.one("SELECT lost_at FROM idem.installation"))["lost_at"]
    if blocked != "between two pages":
        assert listed == [] and said is None, "as if it had not begun"
        assert (await desk.cli("recover", "--lost", "--reason", "restored", "--yes")).code == 0
    else:
        assert len(listed) == 3 and said is not None
        assert (await desk.spine.work()).claimed == 0
        await desk.spine.sweep()
    assert [await desk.spine.status(each) for each in intents] == ["unknown"] * 3
    assert await desk.spine.works() == 0
