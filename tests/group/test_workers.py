"""`idem worker run --processes N`: one that dies is replaced, all end together, one endpoint has the sum of all."""

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import AsyncIterator

import pytest
from fix_desk import Desk
from fix_group import completed, held, metrics, status, take_their_time
from fix_waiting import until
from group.conftest import Command, command, finish_without_supervisor, left_of

pytestmark = pytest.mark.timeout(150)


@contextlib.asynccontextmanager
async def workers(desk: Desk, *options: str, **env: str) -> AsyncIterator[Command]:
    """Two workers of one slot each, both alive."""
    arguments = ("worker", "run", "--processes", "2", "--log", "json", *options)
    async with command(*arguments, env=desk.environment | {"IDEM_WORKER_SLOTS": "1"} | env) as group:
        await until(lambda: beating(desk, 2))
        yield group


async def beating(desk: Desk, number: int) -> bool:
    return len(await desk.spine.all("SELECT FROM idem.daemons WHERE kind = 'worker' AND ended_at IS NULL")) == number


async def ends(desk: Desk) -> list[str]:
    return sorted(await desk.spine.column("SELECT ended_how FROM idem.daemons WHERE kind = 'worker'"))


def counted(text: str, name: str) -> float:
    return sum(map(float, re.findall(rf"^{name}\{{.*\}} (\S+)$", text, re.MULTILINE)))


@pytest.mark.quick
async def test_one_endpoint_has_the_sum_and_sigterm_ends_all(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    take_their_time(desk)
    intents = [await desk.pending(f"k{n}") for n in range(2)]
    received: list[object] = []
    release = asyncio.Event()

    async def hold(payment: object) -> None:
        received.append(payment)
        await release.wait()

    desk.spine.bank.when("received", None, hold)
    async with workers(desk, "--metrics-port", str(unused_tcp_port)) as group:
        assert set(group.children()) == {"worker-1", "worker-2"}
        await until(lambda: len(received) == 2)
        assert len(set(await desk.spine.column("SELECT claimed_by FROM idem.outbox"))) == 2, "one slot, one call each"
        await until(lambda: status(unused_tcp_port, "/readyz") == 200)
        assert status(unused_tcp_port, "/healthz") == 200
        group.process.send_signal(signal.SIGTERM)
        await until(lambda: bool(group.named("stopping")))
        assert status(unused_tcp_port, "/readyz") == 503
        assert counted(await asyncio.to_thread(metrics, unused_tcp_port), "idem_claimed_total") == 2
        release.set()
        assert await group.end() == 0
    assert [await completed(desk, intent) for intent in intents] == [True, True]
    assert left_of(f"parent_watch {group.pid} ") == {}
    assert await ends(desk) == ["clean", "clean"]
    assert "Traceback" not in group.said


async def test_a_killed_worker_is_replaced_and_its_row_is_swept(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    intent = await desk.pending("k")
    began, release = held(desk)
    short = {"IDEM_WORKER_LEASE": "3s", "IDEM_WORKER_MARGIN": "500ms"}
    async with workers(desk, "--metrics-port", str(unused_tcp_port), **short) as group:
        await asyncio.wait_for(began.wait(), 20)
        holder = (await desk.spine.row(intent))["claimed_by"]
        found = await desk.spine.one("SELECT pid FROM idem.daemons WHERE id = %(i)s", i=holder)
        [name] = [name for name, pid in group.children().items() if pid == found["pid"]]
        os.kill(found["pid"], signal.SIGKILL)
        await until(lambda: group.children().get(name, found["pid"]) != found["pid"])
        assert group.named("process_ended", process=name, how="SIGKILL")
        await until(lambda: ended_as(desk, found["pid"], "reaped"))
        await until(lambda: beating(desk, 2))
        # What it had counted stays in the sum.
        assert counted(await asyncio.to_thread(metrics, unused_tcp_port), "idem_claimed_total") == 1
        await asyncio.sleep(3.5)
        await desk.cli("sweeper", "run", "--once")
        await until(lambda: desk.spine.all("SELECT FROM idem.outbox WHERE status = 'unknown'"))
        release.set()
        assert await group.stop() == 0


async def ended_as(desk: Desk, pid: int, how: str) -> bool:
    rows = await desk.spine.all(
        "SELECT ended_how FROM idem.daemons WHERE host = %(h)s AND pid = %(p)s", h=socket.gethostname(), p=pid
    )
    return [row["ended_how"] for row in rows] == [how]


async def test_workers_do_not_outlive_a_killed_supervisor(desk: Desk, linux: None) -> None:
    """They finish their calls first."""
    take_their_time(desk)
    intent = await desk.pending("k")
    began, release = held(desk)
    async with workers(desk) as group:
        await finish_without_supervisor(group, began, release)
    assert await desk.state(intent) == ("completed", None)
    assert await ends(desk) == ["clean", "clean"]


async def test_one_process_has_no_supervisor(desk: Desk, linux: None) -> None:
    async with command("worker", "run", "--log", "json", env=desk.environment) as worker:
        await until(lambda: beating(desk, 1))
        [row] = await desk.spine.all("SELECT pid FROM idem.daemons WHERE kind = 'worker'")
        assert row["pid"] == worker.pid
        assert left_of(f"parent_watch {worker.pid} ") == {}
        assert await worker.stop() == 0
