"""The daemons as processes: they do their work, and end with exit code 0 on SIGTERM."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.request import urlopen

import pytest
from fix_desk import Desk


@asynccontextmanager
async def process(desk: Desk, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`idem` as a process of its own; killed if the test leaves it behind."""
    command = (sys.executable, "-m", "idem.cli.main", *arguments)
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        *command, env=os.environ | desk.environment, stdout=pipe, stderr=pipe
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.communicate()


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    for _ in range(int(seconds * 10)):
        if await check():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"not within {seconds} s")


async def alive(desk: Desk, kind: str) -> bool:
    return bool(await desk.spine.all("SELECT 1 FROM idem.daemons WHERE kind = %(k)s AND ended_at IS NULL", k=kind))


@pytest.mark.quick
@pytest.mark.process
async def test_a_worker_works_and_ends_with_0_on_sigterm(desk: Desk) -> None:
    intent = await desk.pending("k")

    async def settled() -> bool:
        return (await desk.state(intent))[0] == "completed"

    async with process(desk, "worker", "run", "--log", "json") as worker:
        await until(settled)
        worker.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(worker.communicate(), 20)
    assert worker.returncode == 0
    assert desk.spine.effects() == 1
    first, *lines = err.decode().splitlines()
    assert first.startswith("environment test, database")
    assert any(json.loads(line)["event"] == "call" for line in lines)
    ended = await desk.spine.one("SELECT ended_how FROM idem.daemons WHERE kind = 'worker'")
    assert ended["ended_how"] == "clean"


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sweeper", "reconciler"])
async def test_the_other_daemons_end_with_0_on_sigterm(desk: Desk, kind: str) -> None:
    async with process(desk, kind, "run") as daemon:
        await until(lambda: alive(desk, kind))
        daemon.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(daemon.communicate(), 20)
    assert (daemon.returncode, "Traceback" in err.decode()) == (0, False)


@pytest.mark.process
async def test_metrics_are_served_where_they_are_wanted(desk: Desk, unused_tcp_port: int) -> None:
    async with process(desk, "worker", "run", "--metrics-port", str(unused_tcp_port)) as worker:
        await until(lambda: alive(desk, "worker"))
        text = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics").read())
        worker.send_signal(signal.SIGTERM)
        # Less than the 5 s between two probes of the listener: an idle worker has nothing to wait for.
        await asyncio.wait_for(worker.communicate(), 4)
    assert b"idem_claimed_total" in text
    assert worker.returncode == 0


async def test_one_sweep_ends_the_leases_that_ran_out(desk: Desk) -> None:
    intent = await desk.live("k")
    await desk.spine.advance(31)
    result = await desk.cli("sweeper", "run", "--once", "--json")
    assert result.code == 0
    assert result.data["swept"] == result.data["to_unknown"] == 1
    assert await desk.state(intent) == ("unknown", "unknown")


async def test_reconcile_settles_what_is_due_and_shows_what_is_left(desk: Desk) -> None:
    await desk.unknown("k1", quiet=False)
    waiting = await desk.awaiting("k2")
    result = await desk.cli("reconcile", "--now", "--json")
    assert result.code == 0, result.err
    assert "environment test, database" in result.err
    assert [each["intent_id"] for each in result.data["left"]] == [str(waiting)]
    text = await desk.cli("reconcile", "--since", "1h")
    assert text.code == 4, "no provider here has a list: nothing was compared"
    assert str(waiting) in text.out


@pytest.mark.process
async def test_the_bank_says_where_it_is_and_ends_with_0_on_sigterm(desk: Desk) -> None:
    async with process(desk, "bank", "run", "--account", "main:token", "--fault-rate", "0") as bank:
        assert bank.stdout is not None
        url = (await asyncio.wait_for(bank.stdout.readline(), 20)).decode().strip()
        assert url.startswith("http://127.0.0.1:")
        bank.send_signal(signal.SIGTERM)
        await asyncio.wait_for(bank.communicate(), 20)
    assert bank.returncode == 0
    wrong = await desk.cli("bank", "run", "--account", "nonsense")
    assert wrong.code == 2
    assert "expected name:token" in wrong.err
