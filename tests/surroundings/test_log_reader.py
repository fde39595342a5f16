"""Whoever reads the log may be slow, stuck or gone: lines are lost and counted, the work goes on, SIGTERM ends it."""

import asyncio
import contextlib
import fcntl
import http.client
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_processes import started
from fix_waiting import until

from idem.outbox.observe.log_writer import WAITING, Handed, Lines

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def stuck() -> Iterator[tuple[int, int]]:
    """A pipe of one page that is full and that nobody reads: the end to read and the end to write."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 512)
    os.set_blocking(writer, True)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def closed() -> Iterator[tuple[int, int]]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield -1, writer
    finally:
        os.close(writer)


READERS = {"stuck": stuck, "closed": closed}


def test_ib_185_a_write_never_waits_and_what_is_lost_is_counted() -> None:
    lost: list[int] = []
    back: list[int] = []
    with stuck() as (reader, writer), os.fdopen(os.dup(writer), "w") as stream:
        lines = Lines(stream, lost.append, back.append)
        line = "x" * 1000 + "\n"
        written = 3 * WAITING // len(line)
        for _ in range(written):
            lines.write(line)  # it would never come back
        kept = written - sum(lost)
        assert 0 < kept * len(line) <= 2 * WAITING, "what waits, and what is being written"
        assert not back
        seen = bytearray()
        while seen.count(b"\n") < kept:
            seen += os.read(reader, 65536)
        lines.drain(30)
        assert back == [sum(lost)]


def test_ib_185_a_reader_that_has_gone_costs_lines() -> None:
    lost: list[int] = []
    with closed() as (_, writer), os.fdopen(os.dup(writer), "w") as stream:
        lines = Lines(stream, lost.append)
        for _ in range(3):
            lines.write("one\n")
            lines.drain(30)
    assert sum(lost) == 3


@pytest.mark.process
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("daemon", ["worker", "sweeper", "reconciler", "api", "webhooks", "run"])
async def test_ib_185_a_daemon_works_and_ends_without_a_reader(
    desk: Desk, daemon: str, reader: str, unused_tcp_port: int
) -> None:
    """Its standard output and error are one pipe that takes nothing, from its start on."""
    serves = daemon in ("api", "webhooks", "run")
    arguments = [daemon] if daemon == "run" else [daemon, "run"]
    arguments += ["--log-level", "debug", *(["--port", str(unused_tcp_port)] if serves else [])]

    async def at_work() -> bool:
        if serves:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", unused_tcp_port, timeout=5)
                await asyncio.to_thread(connection.request, "GET", "/healthz")
                return (await asyncio.to_thread(connection.getresponse)).status == 200
            return False
        return bool(await desk.spine.all("SELECT FROM idem.daemons WHERE kind = %(k)s", k=daemon))

    async def done() -> bool:
        for number in range(20):  # lines enough
            await asyncio.to_thread(_ask, unused_tcp_port, f"/nothing/{number}") if serves else None
        if daemon in ("api", "webhooks"):
            return True
        states = await desk.spine.all("SELECT status, attempt, lookups, failures FROM idem.outbox")
        match daemon:
            case "sweeper":
                return all(row["status"] == "unknown" for row in states)
            case "reconciler":
                return all(row["lookups"] or row["failures"] for row in states)
            case _:
                return all(row["attempt"] for row in states)

    for number in range(6):
        if daemon == "sweeper":
            await desk.live(f"k{number}")
        elif daemon == "reconciler":
            await desk.unknown(f"k{number}")
        else:
            await desk.pending(f"k{number}")
    await desk.spine.advance(60)
    with READERS[reader]() as (_, writer):
        async with started(*arguments, env=desk.environment, stdout=writer, stderr=writer) as process:
            await until(at_work, "the start")
            await until(done, "the work")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0


def _ask(port: int, path: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path, headers={"Authorization": "Bearer nobody"})
        connection.getresponse().read()


class Stuck(logging.Handler):
    """A handler of an application's, whose reader has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.go_on.wait(60)
        self.seen.append(record.getMessage())


@pytest.fixture
def theirs() -> Iterator[tuple[logging.Logger, Stuck]]:
    logger, handler = logging.getLogger("idem.of_a_test"), Stuck()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield logger, handler
    handler.go_on.set()
    logger.removeHandler(handler)


def test_ib_185_a_loop_of_an_application_is_not_held_up(theirs: tuple[logging.Logger, Stuck]) -> None:
    logger, handler = theirs
    handed = Handed(logger, lambda: True)
    for number in range(12_000):
        handed.warning(f"line {number}")  # it would wait for a minute
    handed.debug("not wanted")
    handler.go_on.set()
    handed.drain(60)
    assert handler.seen[:2] == ["line 0", "line 1"]
    assert len(handler.seen) < 12_000
    (told,) = [line for line in handler.seen if "log_lines_lost" in line]
    lost = re.search(r"lines=(\d+)", told)
    assert lost is not None
    assert len(handler.seen) - 1 + int(lost[1]) == 12_000


def test_outside_of_a_loop_a_line_is_there_at_once(theirs: tuple[logging.Logger, Stuck]) -> None:
    logger, handler = theirs
    handler.go_on.set()
    Handed(logger, lambda: False).info("now")
    assert handler.seen == ["now"]


IN_AN_APPLICATION = """
import asyncio, logging, sys
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
from idem.outbox.observe import logs
logs.quietly()

async def main():
    for number in range(200):
        logs.log.warning("something", number=number)
    return "gone on"

print(asyncio.run(main()), flush=True)
"""


@pytest.mark.quick
@pytest.mark.process
def test_ib_185_an_application_goes_on() -> None:
    """Its loop comes to its end while its own handler waits. The process waits for that handler, as for any line."""
    with (
        stuck() as (reader, writer),
        subprocess.Popen([sys.executable, "-c", IN_AN_APPLICATION], stdout=subprocess.PIPE, stderr=writer) as child,
    ):
        assert child.stdout is not None and child.stdout.readline() == b"gone on\n"
        os.set_blocking(reader, False)
        while child.poll() is None:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 65536)
            time.sleep(0.01)
        assert child.returncode == 0


@pytest.mark.parametrize(
    ("daemon", "number"),
    [
        *((daemon, signal.SIGHUP) for daemon in ("worker", "sweeper", "reconciler", "api", "webhooks", "bank")),
        *(("worker", number) for number in (signal.SIGTERM, signal.SIGINT)),
    ],
)
@pytest.mark.process
async def test_a_signal_ends_each_daemon_in_order(
    desk: Desk, daemon: str, number: signal.Signals, unused_tcp_port: int
) -> None:
    """SIGHUP too: the terminal that it was started from has gone. It says so, and ends with 0.

    One handler is for all signals: each daemon is tried with one of them.
    """
    port = ("--port", str(unused_tcp_port)) if daemon in ("api", "webhooks", "bank") else ()

    async def there() -> bool:
        if daemon == "bank":
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", unused_tcp_port), 5).close()
                return True
            return False
        return bool(await desk.spine.all("SELECT FROM idem.daemons WHERE kind = %(k)s", k=daemon))

    async with started(daemon, "run", *port, env=desk.environment, stderr=asyncio.subprocess.PIPE) as process:
        await until(there, "the start")
        process.send_signal(number)
        _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert daemon == "bank" or f"signal={number.name}" in re.sub("\x1b\\[[0-9;]*m", "", err.decode())


def test_every_long_running_command_writes_without_waiting() -> None:
    """Each command named `run`, and those that supervise, replace their streams before they write a line."""
    for name in ("api", "bank", "daemons", "run", "up", "webhooks"):
        source = (ROOT / "cli" / f"{name}.py").read_text()
        assert "unblocked()" in source or "run_daemon(" in source, name
