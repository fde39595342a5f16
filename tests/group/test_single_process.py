"""`idem run --single-process`: everything in one process. A stop finishes what runs, a crash loses nothing, a failed
daemon ends all of it."""

import asyncio
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fix_desk import Desk
from fix_group import alive, answers, authorized, completed, held, metrics, running, status, take_their_time
from fix_waiting import until
from group.conftest import Command, command, what_ran_is_finished

from idem.cli.group.one_process import until_the_end

pytestmark = pytest.mark.timeout(150)

SINGLE = "--single-process"
KINDS = {"worker", "sweeper", "reconciler", "api"}


def children(process: Command) -> str:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()


async def test_one_process_is_all_daemons(desk: Desk, unused_tcp_port: int, tmp_path: Path, linux: None) -> None:
    """All four give heartbeats, `doctor` finds them, `/metrics` shows all; a folder for metrics stays empty."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    named = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "prometheus_multiproc_dir": str(folder)}
    headers = await authorized(desk) | {"Idempotency-Key": "k", "Prefer": "wait=20"}
    async with (
        running(desk, unused_tcp_port, SINGLE, **named) as process,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{unused_tcp_port}", headers=headers, timeout=40, verify=False
        ) as client,
    ):
        await until(lambda: alive(desk, KINDS))
        await until(lambda: answers(unused_tcp_port) and answers(unused_tcp_port, "/healthz"))
        rows = await desk.spine.all("SELECT kind, host, pid FROM idem.daemons")
        assert {(row["kind"], row["host"], row["pid"]) for row in rows} == {
            (kind, socket.gethostname(), process.pid) for kind in KINDS
        }
        assert children(process) == ""
        paid = await client.post("/v1/intents/pay.keyed", json={"amount": 5})
        assert (paid.status_code, paid.json()["status"]) == (201, "succeeded")
        again = await client.post("/v1/intents/pay.keyed", json={"amount": 5})
        assert (again.content, again.headers["idempotent-replayed"]) == (paid.content, "true")
        assert desk.spine.effects() == 1
        looked = (await desk.cli("doctor")).out
        assert not re.search(r"no \w+ (?:is alive|was ever here)|silent", looked), looked

        async def all_seen() -> bool:
            text = await asyncio.to_thread(metrics, unused_tcp_port)
            passes = set(re.findall(r'^idem_last_pass_timestamp_seconds\{.*daemon="(\w+)"', text, re.MULTILINE))
            return passes >= {"worker", "sweeper", "reconciler"} and "idem_calls_total{" in text

        await until(all_seen)
        assert await process.stop() == 0
    ended = await desk.spine.all("SELECT kind, ended_how FROM idem.daemons")
    assert {(row["kind"], row["ended_how"]) for row in ended} == {(kind, "clean") for kind in KINDS}
    assert list(folder.iterdir()) == []
    assert "Traceback" not in process.said


async def test_sigterm_finishes_what_runs(desk: Desk, unused_tcp_port_factory: Callable[[], int], linux: None) -> None:
    """IB-168. Meanwhile the probe says that this process lives, and is not ready."""
    port, probed = unused_tcp_port_factory(), unused_tcp_port_factory()
    take_their_time(desk)
    intents = [await desk.pending(f"k{n}") for n in range(40)]
    began, release = held(desk)
    async with running(desk, port, SINGLE, "--metrics-port", str(probed), IDEM_WORKER_SLOTS="2") as process:
        await asyncio.wait_for(began.wait(), 20)
        assert answers(probed) and answers(probed, "/healthz")
        process.process.send_signal(signal.SIGTERM)
        await until(lambda: status(probed) == 503)
        assert answers(probed, "/healthz") and answers(probed, "/metrics")
        process.process.send_signal(signal.SIGTERM)
        # Long enough for a claim, if anybody still made one.
        await asyncio.sleep(0.7)
        release.set()
        assert await process.end() == 0
    await what_ran_is_finished(desk, intents)


@pytest.mark.parametrize("event", ["received", "acted"])
async def test_a_crash_of_all_loses_nothing(desk: Desk, unused_tcp_port: int, linux: None, event: str) -> None:
    """Killed in the middle of calls, before and after the bank has acted, and started again."""
    take_their_time(desk)
    began, over = asyncio.Event(), asyncio.Event()

    async def hold(_: object) -> None:
        began.set()
        await over.wait()

    desk.spine.bank.when(event, None, hold, times=4)
    short = {"IDEM_WORKER_LEASE": "30s", "IDEM_WORKER_SLOTS": "4"}
    intents = [await desk.pending(f"k{n}") for n in range(8)]
    async with running(desk, unused_tcp_port, SINGLE, **short) as process:
        await asyncio.wait_for(began.wait(), 20)
        process.process.kill()
        assert await process.end() == -signal.SIGKILL
    over.set()
    assert await desk.spine.all("SELECT FROM idem.outbox WHERE status = 'claimed'") != []
    left = await desk.spine.all("SELECT ended_how FROM idem.daemons WHERE ended_at IS NOT NULL")
    assert left == [], "nothing but a supervisor can know of such an end"
    async with running(desk, unused_tcp_port, SINGLE, **short) as process:

        async def all_completed() -> bool:
            # The lease of what was killed, and the time for which it may act, go by.
            await desk.spine.advance(60)
            await asyncio.sleep(0.5)
            return all([await completed(desk, intent) for intent in intents])

        await until(all_completed, seconds=90)
        assert await process.stop() == 0
    assert desk.spine.effects() == len(intents)


BROKEN = '''
"""An application with a fault: its sweeper fails as soon as there is a file FAIL."""
import asyncio, os
from pathlib import Path
from idem import Idem
from idem.sweeper.daemon import Sweeper

idem = Idem()


async def run(self, stop):
    while not Path(os.environ["FAIL"]).exists():
        await asyncio.sleep(0.05)
    raise RuntimeError("a word of swordfish")


Sweeper.run = run
'''


async def test_a_daemon_that_fails_ends_all(desk: Desk, unused_tcp_port: int, tmp_path: Path, linux: None) -> None:
    take_their_time(desk)
    (tmp_path / "broken.py").write_text(BROKEN)
    began, release = held(desk)
    fail, port = tmp_path / "fail", unused_tcp_port
    arguments = ("run", SINGLE, "--port", str(port), "--log", "json", "--app", "broken:idem")
    async with command(*arguments, env=desk.environment | {"FAIL": str(fail)}, cwd=tmp_path) as process:
        await until(lambda: alive(desk, KINDS - {"sweeper"}))
        intent = await desk.pending("k")
        await asyncio.wait_for(began.wait(), 20)
        fail.touch()
        await until(lambda: bool(process.named("daemon_failed", daemon="sweeper")))
        assert process.process.returncode is None, "a call is running"
        release.set()
        assert await process.end() == 1
    await desk.spine.expect(intent, state="completed", status=None, effects=1)
    [line] = process.named("daemon_failed")
    assert "RuntimeError" in line["error"] and "exits with code 1" in line["do"]
    assert "sweeper failed" in process.said.splitlines()[-1]
    assert "Traceback" not in process.said and "swordfish" not in process.said
    ended = await desk.spine.all("SELECT kind, ended_how FROM idem.daemons")
    assert {(row["kind"], row["ended_how"]) for row in ended} == {(kind, "clean") for kind in KINDS - {"sweeper"}}


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
async def test_a_taken_port_is_said(desk: Desk, unused_tcp_port: int, linux: None, single: bool, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = ("--port", str(unused_tcp_port)) if option != "--port" else ()
        arguments = ("run", *((SINGLE,) if single else ()), *free, option, str(port), "--log", "json")
        async with command(*arguments, env=desk.environment) as process:
            assert await process.end() == 2
    assert f"cannot listen on 127.0.0.1:{port}: another process is listening there" in process.said
    assert "Traceback" not in process.said and not process.named("process_started")
    assert await desk.spine.all("SELECT FROM idem.daemons") == []


async def test_one_port_for_both_is_said_before_anything_starts(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    port = str(unused_tcp_port)
    async with command("run", SINGLE, "--port", port, "--metrics-port", port, env=desk.environment) as process:
        assert await process.end() == 2
    assert f"cannot listen on 127.0.0.1:{port}" in process.said and "Traceback" not in process.said
    assert await desk.spine.all("SELECT FROM idem.daemons") == []


async def test_without_the_api_there_are_probes_all_the_same(desk: Desk, unused_tcp_port: int, linux: None) -> None:
    async with running(desk, 0, SINGLE, "--no-api", "--metrics-port", str(unused_tcp_port)) as process:
        await until(lambda: answers(unused_tcp_port) and answers(unused_tcp_port, "/healthz"))
        intent = await desk.pending("k")
        await until(lambda: completed(desk, intent))
        assert "idem_calls_total{" in await asyncio.to_thread(metrics, unused_tcp_port)
        assert await process.stop() == 0
    assert "listening on http" not in process.said


async def test_more_than_one_worker_is_refused(desk: Desk) -> None:
    async with command("run", SINGLE, "--workers", "2", env=desk.environment) as process:
        assert await process.end() == 2
    assert "--single-process has one worker" in re.sub(r"\s+", " ", process.said)


async def test_whatever_ends_too_early_or_too_late_has_failed_and_ends_all() -> None:
    async def until(stop: asyncio.Event) -> None:
        await stop.wait()

    async def at_once() -> None:
        await asyncio.sleep(0)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def never() -> None:
        await asyncio.Event().wait()

    for work in (at_once, cancelled):
        stop = asyncio.Event()
        found = until_the_end({"good": until(stop), "bad": work()}, stop, 30)
        assert await asyncio.wait_for(found, 20) == ["bad"]
    stop = asyncio.Event()
    stop.set()
    assert await asyncio.wait_for(until_the_end({"good": until(stop), "bad": never()}, stop, 0.05), 20) == ["bad"]
    stop = asyncio.Event()
    stop.set()
    assert await asyncio.wait_for(until_the_end({"good": until(stop)}, stop, 30), 20) == []
