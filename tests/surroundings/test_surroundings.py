"""What surrounds a process goes wrong while it works: it goes on afterwards, and SIGTERM ends it in the middle.

One table: each daemon in each surrounding. The reader of a log is in `test_log_reader`, the folder of a group's metrics
in `test_metrics_folder`, the passes of sweeper and reconciler over a step of the clock in `test_wall_clock`.
"""

import asyncio
import contextlib
import http.client
import os
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_processes import Clock, started
from fix_waiting import until

from idem.outcomes import Ambiguous

YEAR = 366 * 86400.0
DAEMONS = ("worker", "sweeper", "reconciler", "api", "webhooks")
SERVING = ("api", "webhooks")


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


class Work:
    """Something for a daemon to do, and whether it is done."""

    def __init__(self, desk: Desk, daemon: str, port: int) -> None:
        self._desk = desk
        self._daemon = daemon
        self._port = port
        self._number = 0

    async def give(self) -> Callable[[], Awaitable[bool]]:
        """One more; the question whether it is done."""
        self._number += 1
        key, desk = f"k{self._number}", self._desk
        match self._daemon:
            case "worker" | "run":
                intent = await desk.pending(key)
            case "sweeper":
                intent = await desk.live(key)
                await desk.spine.advance(60)
            case "reconciler":
                intent = await desk.after(key, Ambiguous())
                await desk.spine.advance(60)
            case _:
                return lambda: asyncio.to_thread(lambda: get(self._port, "/healthz") == 200)

        async def done() -> bool:
            row = await desk.spine.row_if_any(intent)
            if self._daemon in ("worker", "run"):
                return row is None
            return row is None or (row["status"] != "claimed" and (self._daemon == "sweeper" or row["lookups"] > 0))

        return done


@contextlib.asynccontextmanager
async def at_work(
    desk: Desk, daemon: str, port: int, tmp_path: Path, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Work]]:
    """A daemon that has done something. It has no temporary folder either: that is where `TMPDIR` leads."""
    arguments = [daemon] if daemon == "run" else [daemon, "run"]
    arguments += ["--log", "json", *(["--port", str(port)] if daemon in (*SERVING, "run") else [])]
    environment = desk.environment | environment
    if daemon != "run":
        environment["TMPDIR"] = str(tmp_path / "absent")
    with tmp_path.joinpath("log").open("wb") as log:
        async with started(*arguments, env=environment, stderr=log) as process:
            work = Work(desk, daemon, port)
            await until(await work.give(), "the first work")
            yield process, work


async def ended(process: asyncio.subprocess.Process, tmp_path: Path) -> None:
    """SIGTERM: within its grace, with 0, and it says so."""
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 90) == 0
    log = tmp_path.joinpath("log").read_text()
    assert '"stop_requested"' in log or '"stopping"' in log
    assert "Traceback" not in log


@pytest.mark.process
@pytest.mark.parametrize("daemon", DAEMONS)
async def test_the_wall_clock_steps(
    desk: Desk, stepped: Clock, daemon: str, unused_tcp_port: int, tmp_path: Path
) -> None:
    async with at_work(desk, daemon, unused_tcp_port, tmp_path, **stepped.environment) as (process, work):
        for step in (-120.0, 120.0, -10 * YEAR, 10 * YEAR):
            stepped.step(step)
            await until(await work.give(), f"the work after a step of {step} s")
        await ended(process, tmp_path)


def next_descriptor(pid: int) -> int:
    """The number that its next file would have."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return min(set(range(len(taken) + 1)) - taken)


@contextlib.contextmanager
def none_left(pid: int) -> Iterator[None]:
    """Every further file or socket is refused (EMFILE), those that it has stay."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next_descriptor(pid), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.process
@pytest.mark.parametrize("daemon", DAEMONS)
async def test_descriptors_run_out(desk: Desk, daemon: str, unused_tcp_port: int, tmp_path: Path) -> None:
    """What needs a new one waits for it: nothing is lost or made twice. SIGTERM needs none."""
    async with at_work(desk, daemon, unused_tcp_port, tmp_path) as (process, work):
        with none_left(process.pid):
            done = await work.give()
            await asyncio.sleep(2)
            assert process.returncode is None
        # A back-off may have been begun.
        await desk.spine.advance(60) if daemon in ("worker", "reconciler") else None
        await until(done, "the work, with descriptors again")
        with none_left(process.pid):
            await ended(process, tmp_path)
    if daemon == "worker":
        assert desk.spine.effects() == 2


@pytest.mark.process
async def test_a_supervisor_without_descriptors_starts_again_what_dies(
    desk: Desk, unused_tcp_port: int, tmp_path: Path
) -> None:
    async with at_work(desk, "run", unused_tcp_port, tmp_path) as (process, work):
        with none_left(process.pid):
            row = await desk.spine.one("SELECT pid FROM idem.daemons WHERE kind = 'worker'")
            os.kill(row["pid"], signal.SIGKILL)
            done = await work.give()
            await asyncio.sleep(2)
            assert process.returncode is None
        await until(done, "the work of another worker", seconds=90)
        with none_left(process.pid):
            await ended(process, tmp_path)
    log = tmp_path.joinpath("log").read_text()
    assert '"doing": "start of worker-1"' in log, "it has said that there was no room for another one"
