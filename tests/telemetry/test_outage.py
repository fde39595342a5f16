"""IB-142: a database that is away makes no flood of lines, and the metrics go on answering."""

import asyncio
import os
import signal
import sys
from urllib.request import urlopen

import pytest
from fix_desk import Desk
from fix_line import target, through
from fix_waiting import until

from idem.outbox.values import clock
from idem.testing.proxy import Proxy

AWAY = 8.0
"""Seconds: long enough for every wait between two attempts to have come to its longest."""


@pytest.mark.process
@pytest.mark.parametrize("daemon", ["worker", "sweeper"])
async def test_ib_142_an_outage_is_a_line_a_minute(desk: Desk, unused_tcp_port: int, daemon: str) -> None:
    async with Proxy(target(desk.spine.url)) as proxy:
        environment = os.environ | desk.environment | {"IDEM_DATABASE_URL": through(desk.spine.url, proxy)}
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "idem.cli.main", daemon, "run", "--log", "json", "--metrics-port",
            str(unused_tcp_port), env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

        async def metrics() -> str:
            return await asyncio.to_thread(
                lambda: urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics", timeout=5).read().decode()
            )

        try:
            await until(lambda: desk.spine.all("SELECT FROM idem.daemons WHERE last_pass_at IS NOT NULL"))
            await proxy.stop()
            ends = clock.boottime() + AWAY
            while clock.boottime() < ends:
                assert "idem_last_pass_timestamp_seconds" in await metrics()
                await asyncio.sleep(1)
            counted = await metrics()
            await proxy.listen()
            await asyncio.sleep(7)
            running.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(running.communicate(), 30)
        finally:
            if running.returncode is None:
                running.kill()
                await running.communicate()
    assert running.returncode == 0
    lines = err.decode().splitlines()
    away = [line for line in lines if '"database_away"' in line]
    assert away
    assert "idem_store_errors_total{" in counted
    # One a series of passes and no more: a minute must pass before it is said again.
    errors = [line for line in lines if '"error"' in line]
    assert len(errors) <= AWAY / 2, err.decode()
    assert [line for line in lines if '"database_back"' in line]
