"""`idem run`: whoever dies is started again and put on record; SIGTERM finishes what runs; nothing is left behind."""

import asyncio
import contextlib
import os
import re
import signal
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fix_desk import Desk
from fix_group import alive, answers, authorized, completed, held, metrics, running, take_their_time
from fix_sql import query
from fix_waiting import until
from group.conftest import Command, command, finish_without_supervisor, left_of, processes, what_ran_is_finished

from idem.cli.group.metrics_folder import metrics_folder

pytestmark = pytest.mark.timeout(150)

DAEMONS = {"worker-1", "sweeper", "reconciler", "api"}


async def daemon_of(desk: Desk, pid: int) -> dict[str, Any]:
    return await desk.spine.one(
        "SELECT kind, ended_how FROM idem.daemons WHERE host = %(h)s AND pid = %(p)s", h=socket.gethostname(), p=pid
    )


async def test_everything_runs_and_ends_with_0(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    headers = await authorized(desk) | {"Idempotency-Key": "k", "Prefer": "wait=20"}
    async with (
        running(desk, unused_tcp_port, "--workers", "2") as group,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{unused_tcp_port}", headers=headers, timeout=40, verify=False
        ) as client,
    ):
        await until(lambda: answers(unused_tcp_port))
        assert set(group.children()) == DAEMONS | {"worker-2"}
        paid = await client.post("/v1/intents/pay.keyed", json={"amount": 5})
        assert (paid.status_code, paid.json()["status"]) == (201, "succeeded")
        again = await client.post("/v1/intents/pay.keyed", json={"amount": 5})
        assert (again.content, again.headers["idempotent-replayed"]) == (paid.content, "true")
        assert desk.spine.effects() == 1
        assert await group.stop() == 0
    assert left_of(f"parent_watch {group.pid} ") == {}
    ended = await desk.spine.all("SELECT kind, ended_how FROM idem.daemons")
    assert {(row["kind"], row["ended_how"]) for row in ended} == {
        (kind, "clean") for kind in ("worker", "sweeper", "reconciler", "api")
    }
    assert "Traceback" not in group.said


@pytest.mark.parametrize(("supervised", "quiet"), [(True, 60), (False, 60 + 120)])
async def test_a_supervisors_word(desk: Desk, unused_tcp_port: int, linux: None, supervised: bool, quiet: int) -> None:
    """The same crash in the middle of the same call: known to be dead, the worker may act for its flight limit only."""
    began, release = held(desk)
    intent = await desk.pending("k")
    short = {"IDEM_WORKER_LEASE": "3s", "IDEM_WORKER_MARGIN": "500ms"}
    async with contextlib.AsyncExitStack() as stack:
        if supervised:
            group = await stack.enter_async_context(running(desk, unused_tcp_port, **short))
            worker = group.children()["worker-1"]
        else:
            alone = await stack.enter_async_context(command("worker", "run", env=desk.environment | short))
            worker = alone.pid
        await asyncio.wait_for(began.wait(), 20)
        claimed = await desk.spine.row(intent)
        os.kill(worker, signal.SIGKILL)
        if supervised:
            await until(lambda: started_again(group, "worker-1", worker))
            assert (await daemon_of(desk, worker))["ended_how"] == "reaped"
            assert group.named("process_ended", process="worker-1", how="SIGKILL")
        await asyncio.sleep(3.5)
        await desk.cli("sweeper", "run", "--once")
        await until(lambda: desk.spine.all("SELECT FROM idem.outbox WHERE status = 'unknown'"))
        row = await desk.spine.row(intent)
        release.set()
    assert row is not None and row["quiet_after"] - claimed["claimed_until"] == timedelta(seconds=quiet)


def started_again(group: Command, name: str, before: int) -> bool:
    """Whether it is a new process, and its predecessor's end has been dealt with."""
    return group.children().get(name, before) != before


async def test_a_death_in_an_outage_is_recorded(desk: Desk, unused_tcp_port: int, db_url: str, linux: None) -> None:
    """Pids come again: a row of an older daemon with this host and pid, perhaps on another machine, stays open.

    The end of the terminal ends it all.
    """
    from fix_line import database_proxy

    async with (
        database_proxy(desk.spine) as (proxy, url),
        running(desk, unused_tcp_port, IDEM_DATABASE_URL=url) as group,
    ):
        worker = group.children()["worker-1"]
        query(
            db_url,
            "INSERT INTO idem.daemons (id, kind, host, pid, started_at) VALUES"
            " ('worker-older', 'worker', %s, %s, statement_timestamp() - interval '1 hour')",
            (socket.gethostname(), worker),
        )
        os.kill(worker, signal.SIGKILL)
        await until(lambda: reaped(desk, worker))
        assert await desk.spine.value("SELECT ended_at FROM idem.daemons WHERE id = 'worker-older'") is None
        await until(lambda: started_again(group, "worker-1", worker))
        again = group.children()["worker-1"]
        await until(lambda: on_record(desk, again))
        await proxy.stop()
        os.kill(again, signal.SIGKILL)
        await until(lambda: bool(group.named("database_away", daemon="supervisor")))
        assert (await daemon_of(desk, again))["ended_how"] is None
        await proxy.listen()
        await until(lambda: reaped(desk, again))
        assert await group.stop(signal.SIGHUP) == 0


async def on_record(desk: Desk, pid: int) -> bool:
    return bool(await desk.spine.all("SELECT FROM idem.daemons WHERE pid = %(p)s AND ended_at IS NULL", p=pid))


async def reaped(desk: Desk, pid: int) -> bool:
    return len(await desk.spine.all("SELECT FROM idem.daemons WHERE pid = %(p)s AND ended_how = 'reaped'", p=pid)) == 1


async def test_ib_168_169_sigterm_finishes_what_runs_alone(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    take_their_time(desk)
    intents = [await desk.pending(f"k{n}") for n in range(40)]
    began, release = held(desk)
    async with running(desk, unused_tcp_port, IDEM_WORKER_SLOTS="2") as group:
        await asyncio.wait_for(began.wait(), 20)
        group.process.send_signal(signal.SIGTERM)
        await until(lambda: bool(group.named("stopping")))
        # Long enough for a claim, if anybody still made one.
        await asyncio.sleep(0.7)
        release.set()
        assert await group.end() == 0
    await what_ran_is_finished(desk, intents)


@pytest.mark.quick
async def test_ib_172_a_second_signal_changes_nothing(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    """And the end of a terminal is no signal to who was started with nohup."""
    take_their_time(desk)
    intent = await desk.pending("k")
    began, release = held(desk)
    async with running(desk, unused_tcp_port, prefix=("nohup",)) as group:
        await asyncio.wait_for(began.wait(), 20)
        group.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.3)
        assert not group.named("stopping")
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            group.process.send_signal(number)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        release.set()
        assert await group.end() == 0
    assert await desk.state(intent) == ("completed", None)
    assert len(desk.spine.bank.log.sends()) == desk.spine.effects() == 1
    assert left_of(f"parent_watch {group.pid} ") == {}


async def test_the_daemons_do_not_outlive_a_killed_supervisor(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    """They finish their calls first: what a supervisor dies of is no reason for an unknown."""
    intent = await desk.pending("k")
    began, release = held(desk)
    async with running(desk, unused_tcp_port) as group:
        await finish_without_supervisor(group, began, release)
    assert await desk.state(intent) == ("completed", None)
    assert set(await desk.spine.column("SELECT ended_how FROM idem.daemons WHERE kind <> 'api'")) == {"clean"}


@pytest.mark.quick
async def test_ib_162_164_counters_outlive_their_processes(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    """`/metrics` of the API has all processes; one that is killed takes no count with it and leaves no series."""
    async with running(desk, unused_tcp_port) as group:
        await until(lambda: answers(unused_tcp_port))
        counts, series = [], []
        for n in range(2):
            intent = await desk.pending(f"k{n}")
            await until(lambda intent=intent: completed(desk, intent))  # type: ignore[misc]
            text = await asyncio.to_thread(metrics, unused_tcp_port)
            counts.append(sum(map(float, re.findall(r"^idem_calls_total\{.*\} (\S+)$", text, re.MULTILINE))))
            series.append(set(re.findall(r"^(idem_(?:calls|claimed|reports)\w*(?:\{.*\})?) ", text, re.MULTILINE)))
            worker = group.children()["worker-1"]
            os.kill(worker, signal.SIGKILL)
            await until(lambda worker=worker: started_again(group, "worker-1", worker))  # type: ignore[misc]
        assert counts == [1, 2]
        assert series[-1] == series[0]
        assert await group.stop() == 0


async def test_a_daemon_that_cannot_start_waits_longer_each_time(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    """And is no reason to take the others away."""
    before = read(desk)
    async with running(desk, unused_tcp_port) as group:
        await until(lambda: answers(unused_tcp_port))
        worker = group.children()["worker-1"]
        write(desk, before.replace('environment = "test"', "environment = 1"))
        os.kill(worker, signal.SIGKILL)
        await until(lambda: len(group.named("process_ended", process="worker-1")) >= 3)
        ends = group.named("process_ended", process="worker-1")
        assert [end["how"] for end in ends[:2]] == ["SIGKILL", "exit code 2"]
        waits = [end["again_in"] for end in ends]
        assert waits == sorted(set(waits))
        assert answers(unused_tcp_port)
        write(desk, before)
        intent = await desk.pending("k")
        await until(lambda: completed(desk, intent))
        assert await group.stop() == 0


def test_a_folder_of_metrics_goes_with_its_supervisor_or_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, young = tmp_path / "idem-metrics-old", tmp_path / "idem-metrics-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "counter_1.db").touch()
    os.utime(old, (1, 1))
    with metrics_folder() as first:
        assert not old.exists() and young.exists()
        os.utime(first, (1, 1))
        with metrics_folder() as second:
            assert Path(first).exists() and first != second
    assert list(tmp_path.iterdir()) == [young]


async def test_a_missing_schema_is_said_once(desk: Desk, server: str, unused_tcp_port: int, linux: None) -> None:
    environment = desk.environment | {"IDEM_DATABASE_URL": server}
    async with command("run", "--port", str(unused_tcp_port), env=environment) as group:
        assert await group.end() in (1, 2)
    assert group.said.count("Run `idem db upgrade`") == 1
    assert "process_started" not in group.said


async def test_ib_167_as_process_1_it_stops_and_buries_orphans(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    tried = await asyncio.create_subprocess_exec(*unshare, "true", stderr=asyncio.subprocess.DEVNULL)
    if await tried.wait():
        pytest.skip("this machine lets nobody make a namespace of processes")
    # The shell becomes idem, process 1 of its namespace; what it left behind is idem's child from then on.
    orphan = "orphan-of-idem-run"
    shell = f'(exec -a {orphan} sleep 600 &); exec "$@"'
    began, release = held(desk)
    arguments = ("run", "--port", str(unused_tcp_port), "--log", "json")
    async with command(*arguments, env=desk.environment, prefix=(*unshare, "bash", "-c", shell, "bash")) as group:
        await until(lambda: alive(desk, {"worker"}))
        [first] = [int(pid) for pid in children_of(group.pid)]
        assert "idem.cli.main run" in processes()[first]
        [left] = orphans(orphan)
        os.kill(left, signal.SIGKILL)
        await until(lambda: not orphans(orphan))
        await until(lambda: "Z" not in [state(int(pid)) for pid in children_of(first)])
        intent = await desk.pending("k")
        await asyncio.wait_for(began.wait(), 20)
        os.kill(first, signal.SIGTERM)
        await until(lambda: bool(group.named("stopping")))
        release.set()
        assert await group.end(30) == 0
    assert await desk.state(intent) == ("completed", None)


def orphans(name: str) -> list[int]:
    return [pid for pid, text in processes().items() if text.startswith(name)]


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    return ""


def read(desk: Desk) -> str:
    return Path(desk.environment["IDEM_CONFIG"]).read_text()


def write(desk: Desk, configuration: str) -> None:
    Path(desk.environment["IDEM_CONFIG"]).write_text(configuration)
