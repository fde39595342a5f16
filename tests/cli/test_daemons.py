"""The daemons as processes: they do their work, and end with exit code 0 on SIGTERM."""

import asyncio
import json
import signal
from asyncio.subprocess import PIPE
from contextlib import AbstractAsyncContextManager
from urllib.request import urlopen

import pytest
from fix_desk import Desk
from fix_processes import started
from fix_waiting import until


def process(desk: Desk, *arguments: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return started(*arguments, env=desk.environment, stdout=PIPE, stderr=PIPE)


@pytest.mark.quick
@pytest.mark.process
async def test_a_worker_works_and_ends_with_0_on_sigterm(desk: Desk) -> None:
    intent = await desk.pending("k")

    async with process(desk, "worker", "run", "--log", "json") as worker:
        await until(lambda: desk.settled(intent))
        worker.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(worker.communicate(), 20)
    assert worker.returncode == 0
    assert desk.spine.effects() == 1
    first, *lines = err.decode().splitlines()
    assert first.startswith("environment test, database")
    assert any(json.loads(line)["event"] == "call" for line in lines)
    assert await desk.spine.value("SELECT ended_how FROM idem.daemons WHERE kind = 'worker'") == "clean"


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sweeper", "reconciler"])
async def test_the_other_daemons_end_with_0_on_sigterm(desk: Desk, kind: str) -> None:
    async with process(desk, kind, "run") as daemon:
        await until(lambda: desk.alive(kind))
        daemon.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(daemon.communicate(), 20)
    assert (daemon.returncode, "Traceback" in err.decode()) == (0, False)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sweeper", "reconciler", "webhooks"])
async def test_every_daemon_has_probes_beside_its_metrics(desk: Desk, unused_tcp_port: int, kind: str) -> None:
    port = () if kind != "webhooks" else ("--port", "0")
    async with process(desk, kind, "run", *port, "--metrics-port", str(unused_tcp_port)) as daemon:
        await until(lambda: desk.alive(kind))
        for path, said in (("healthz", {"alive": True}), ("readyz", {"ready": True})):
            answer = await asyncio.to_thread(lambda path=path: urlopen(f"http://127.0.0.1:{unused_tcp_port}/{path}"))
            assert json.loads(answer.read()) == said
        daemon.send_signal(signal.SIGTERM)
        await asyncio.wait_for(daemon.communicate(), 20)
    assert daemon.returncode == 0


@pytest.mark.process
async def test_metrics_are_served_where_they_are_wanted(desk: Desk, unused_tcp_port: int) -> None:
    async with process(desk, "worker", "run", "--metrics-port", str(unused_tcp_port)) as worker:
        await until(lambda: desk.alive("worker"))
        text = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics").read())
        worker.send_signal(signal.SIGTERM)
        # Less than the 5 s between two probes of the listener: an idle worker has nothing to wait for.
        await asyncio.wait_for(worker.communicate(), 4)
    assert b"idem_claimed_total" in text
    assert worker.returncode == 0


async def test_one_sweep_ends_the_leases_that_ran_out(desk: Desk) -> None:
    intent = await desk.live("k")
    await desk.spine.advance(31)
    result = await desk.cli("sweeper", "run", "--once", "--json", code=0)
    assert result.data["swept"] == result.data["to_unknown"] == 1
    assert await desk.state(intent) == ("unknown", "unknown")


async def test_reconcile_settles_what_is_due_and_shows_what_is_left(desk: Desk) -> None:
    await desk.unknown("k1", quiet=False)
    waiting = await desk.awaiting("k2")
    result = await desk.cli("reconcile", "--now", "--json", code=0, err="environment test, database")
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
    await desk.cli("bank", "run", "--account", "nonsense", code=2, err="expected name:token")
