"""Attacks on the service: logs that nobody can write any more, deaths put on record for somebody who lives."""

import asyncio
import os
import signal
import socket

import pytest
from fix_desk import Desk
from fix_group import alive
from fix_processes import started
from fix_sql import query
from fix_waiting import until
from group.conftest import command, left_of
from schema.conftest import empty_database  # noqa: F401

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]


@pytest.mark.process
async def test_a_group_whose_log_nobody_reads_any_more_goes_on(desk: Desk, unused_tcp_port: int) -> None:
    """`idem run 2>&1 | head`: a line that cannot be written changes nothing of what is done."""
    reads, writes = os.pipe()
    async with started(
        "run", "--port", str(unused_tcp_port), "--log", "json", env=desk.environment, stdout=writes, stderr=writes
    ) as group:
        os.close(writes)
        await until(lambda: alive(desk, {"worker", "sweeper", "reconciler", "api"}))
        os.close(reads)
        intent = await desk.pending("k")
        await until(lambda: desk.settled(intent))
        assert group.returncode is None
        workers = [pid for pid, line in left_of(f"parent_watch {group.pid} ").items() if " worker run" in line]
        os.kill(workers[0], signal.SIGKILL)
        another = await desk.pending("k2")
        await until(lambda: desk.settled(another))
        group.terminate()
        assert await asyncio.wait_for(group.wait(), 30) == 0


@pytest.mark.process
async def test_a_death_is_not_recorded_for_a_pid_elsewhere(desk: Desk, unused_tcp_port: int, db_url: str) -> None:
    """Containers in the host's network share its name, and each counts its pids from 1: the younger one is alive."""
    async with command("run", "--port", str(unused_tcp_port), "--log", "json", env=desk.environment) as group:
        await until(lambda: "worker-1" in group.children())
        worker = group.children()["worker-1"]
        await until(lambda: desk.spine.all("SELECT FROM idem.daemons WHERE pid = %(p)s", p=worker))
        query(
            db_url,
            "INSERT INTO idem.daemons (id, kind, host, pid) VALUES ('worker-alive', 'worker', %s, %s)",
            (socket.gethostname(), worker),
        )
        os.kill(worker, signal.SIGKILL)
        await until(lambda: desk.spine.all("SELECT FROM idem.daemons WHERE ended_how = 'reaped'"))
        assert await desk.spine.value("SELECT ended_at FROM idem.daemons WHERE id = 'worker-alive'") is None
        assert await group.stop() == 0
