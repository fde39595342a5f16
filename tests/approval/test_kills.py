"""`idem intents approve` and `reject` that are killed at any statement: the decision is there whole, or not at all."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from approval.waiting import BIG
from fix_desk import Desk
from fix_sql import query
from fix_waiting import until

IDEM = str(Path(sys.executable).with_name("idem"))
APPROVES = '\n[operations."pay.keyed".approve]\nat = "/amount"\nabove = 1000\n'
BLOCKED = {
    "before the lock of its row": "SELECT FROM idem.outbox FOR UPDATE",
    "between its lock and the lock of its intent": "SELECT FROM idem.intents FOR UPDATE",
    "between the row and the evidence": "LOCK TABLE idem.evidence IN SHARE MODE",
    "at the commit": "SELECT pg_advisory_xact_lock(42)",
}
SLOW_COMMIT = """
CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON idem.evidence DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.source = 'operator') EXECUTE FUNCTION public.slow()
"""
WAITS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'idem%%'
   AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def deciding(desk: Desk, blocked: str, *command: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The command as a process that stands still there, and its backend."""
    async with asyncio.timeout(120):
        with psycopg.connect(desk.spine.url) as other:
            other.execute(BLOCKED[blocked])
            process = await asyncio.create_subprocess_exec(
                IDEM, "intents", *command, "--reason", "r", "--yes", env={**os.environ, **desk.environment},
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


def asked(desk: Desk, configuration: Path) -> UUID:
    configuration.write_text(configuration.read_text() + APPROVES)
    query(desk.spine.url, SLOW_COMMIT)
    desk.spine.know(approve=lambda params: params["amount"] > 1000)
    return desk.spine.accepted("k", BIG)


@pytest.mark.parametrize(
    ("command", "blocked"),
    # The gate waits for no lock of an intent: it refuses at once.
    [*(("approve", each) for each in BLOCKED), *(("reject", each) for each in BLOCKED if "intent" not in each)],
)
async def test_it_is_decided_whole_or_not_at_all(desk: Desk, configuration: Path, command: str, blocked: str) -> None:
    intent = asked(desk, configuration)
    async with deciding(desk, blocked, command, str(intent)) as (process, backend):
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert await desk.spine.works() == 0, "what is not committed is not sent"
    await until(lambda: not query(desk.spine.url, "SELECT FROM pg_stat_activity WHERE pid = %s", [backend]))
    word = {"approve": "approved", "reject": "rejected"}[command]
    told = [kind for _, kind, _ in await desk.spine.evidence(intent)]
    row = await desk.spine.row_if_any(intent)
    if word in told:
        assert blocked == "at the commit", "the server had been told to commit, and only its answer was lost"
        assert (None if row is None else (row["status"], row["approval"])) == (
            ("pending", "given") if command == "approve" else None
        )
        again = await desk.cli("intents", command, intent, "--reason", "r", "--yes", code=1)
        assert "does not wait for an approval" in again.err or "already completed" in again.err
    else:
        assert told == ["accepted"] and row is not None
        assert (row["status"], row["approval"]) == ("approval", "wanted")
        await desk.cli("intents", command, intent, "--reason", "r", "--yes", code=0)
    assert await desk.spine.works() == (command == "approve")
    assert [kind for _, kind, _ in await desk.spine.evidence(intent)].count(word) == 1


@pytest.mark.parametrize("blocked", BLOCKED)
async def test_a_connection_that_breaks_is_told_and_decides_nothing_twice(
    desk: Desk, configuration: Path, superuser_url: str, blocked: str
) -> None:
    intent = asked(desk, configuration)
    async with deciding(desk, blocked, "approve", str(intent)) as (process, backend):
        query(superuser_url, "SELECT pg_terminate_backend(%(pid)s)", {"pid": backend})
        _, told = await process.communicate()
        assert process.returncode not in (0, None) and b"Traceback" not in told
    assert await desk.spine.status(intent) == "approval"
    await desk.cli("intents", "approve", intent, "--reason", "r", "--yes", code=0)
    assert await desk.spine.works() == 1
