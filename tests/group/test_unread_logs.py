"""Attacks on the service: logs that nobody can write any more, deaths put on record for somebody who lives."""

import asyncio
import os
import signal
import socket
import sys

import pytest
from fix_desk import Desk
from fix_sql import query
from group.conftest import command, eventually, left_of
from schema.conftest import empty_database  # noqa: F401

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]


@pytest.mark.process
async def test_a_group_whose_log_nobody_reads_any_more_goes_on(desk: Desk, unused_tcp_port: int) -> None:
    """`idem run 2>&1 | head`: a line that cannot be written changes nothing of what is done."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    reads, writes = os.pipe()
    group = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.cli.main", "run", "--port", str(unused_tcp_port), "--log", "json",
        env=inherited | desk.environment, stdin=asyncio.subprocess.DEVNULL, stdout=writes, stderr=writes,
    )  # fmt: skip
    os.close(writes)
    try:

        async def alive() -> bool:
            rows = await desk.spine.all("SELECT kind FROM idem.daemons WHERE ended_at IS NULL")
            return {"worker", "sweeper", "reconciler", "api"} <= {row["kind"] for row in rows}

        await eventually(alive)
        os.close(reads)
        intent = await desk.pending("k")

        async def completed() -> bool:
            return (await desk.state(intent))[0] == "completed"

        await eventually(completed)
        assert group.returncode is None
        workers = [pid for pid, line in left_of(f"parent_watch {group.pid} ").items() if " worker run" in line]
        os.kill(workers[0], signal.SIGKILL)
        another = await desk.pending("k2")

        async def completed_too() -> bool:
            return (await desk.state(another))[0] == "completed"

        await eventually(completed_too)
        group.terminate()
        assert await asyncio.wait_for(group.wait(), 30) == 0
    finally:
        if group.returncode is None:
            group.kill()
            await group.wait()


@pytest.mark.process
async def test_a_death_is_not_put_on_record_for_the_same_pid_of_another_container(
    desk: Desk,
    unused_tcp_port: int,
    db_url: str,
) -> None:
    """Containers in the host's network share its name, and each counts its pids from 1: the younger one is alive."""
    async with command("run", "--port", str(unused_tcp_port), "--log", "json", env=desk.environment) as group:
        await eventually(lambda: "worker-1" in group.children())
        worker = group.children()["worker-1"]

        async def ended() -> bool:
            rows = await desk.spine.all("SELECT FROM idem.daemons WHERE ended_how = 'reaped'")
            return bool(rows)

        async def beats() -> bool:
            return bool(await desk.spine.all("SELECT FROM idem.daemons WHERE pid = %(p)s", p=worker))

        await eventually(beats)
        query(
            db_url,
            "INSERT INTO idem.daemons (id, kind, host, pid) VALUES ('worker-alive', 'worker', %s, %s)",
            (socket.gethostname(), worker),
        )
        os.kill(worker, signal.SIGKILL)
        await eventually(ended)
        alive = await desk.spine.one("SELECT ended_at FROM idem.daemons WHERE id = 'worker-alive'")
        assert alive["ended_at"] is None
        assert await group.stop() == 0
