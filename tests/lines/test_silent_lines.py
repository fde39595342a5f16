"""A line that goes silent and stays open (a pooler or balancer that hangs, while its kernel goes on acknowledging).

Each process names it in its log, ends on SIGTERM within its grace, and goes on by itself when the line is back.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fix_accept import Acceptor
from fix_desk import Desk
from fix_line import target, through
from fix_spine import catalogue
from fix_waiting import until

from idem.testing.proxy import Direction, Proxy, ProxyAction

PATIENCE = 90.0
"""Seconds, generous: a process that hangs is found by it. The bounds below are a few seconds long."""
LIMITS = '\n[database]\nconnect_timeout = "2s"\nstatement_timeout = "1s"\n[worker]\npoll = "200ms"\nlease = "15s"\n'
PORTS = {"api": ("--port", "0"), "webhooks": ("--port", "0")}


class Hold:
    """Holds what passes back while it is silent: all of it, or of the one connection that listens for notices."""

    def __init__(self, only_listener: bool = False) -> None:
        self.passing = asyncio.Event()
        self.passing.set()
        self._only_listener = only_listener
        self._listener: int | None = None
        self.held = 0

    async def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and b"LISTEN idem" in data:
            self._listener = number
        if not self._only_listener or number == self._listener:
            self.held += not self.passing.is_set()
            await self.passing.wait()
        return "pass"


class Process:
    """`idem` as a process of its own, and the lines of its log so far."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self.running = running
        self.lines: list[str] = []
        self._reading = [asyncio.create_task(self._read(pipe)) for pipe in (running.stderr, running.stdout)]

    async def _read(self, pipe: asyncio.StreamReader | None) -> None:
        assert pipe is not None
        async for line in pipe:
            self.lines.append(line.decode())

    async def said(self, event: str) -> None:
        await until(lambda: any(f'"{event}"' in line for line in self.lines), self.lines)

    async def end(self) -> int:
        self.running.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.running.wait(), PATIENCE)
        await asyncio.gather(*self._reading)
        return code


@asynccontextmanager
async def daemon(desk: Desk, url: str, *arguments: str) -> AsyncIterator[Process]:
    environment = os.environ | desk.environment | {"IDEM_DATABASE_URL": url}
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.cli.main", *arguments, "--log", "json", env=environment, stdout=pipe, stderr=pipe
    )
    try:
        yield Process(running)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


def move(configuration: Path, here: str, there: str) -> None:
    configuration.write_text(configuration.read_text().replace(here, there))


@pytest.fixture(autouse=True)
def limits(desk: Desk, configuration: Path) -> None:
    """A silent line is given up after seconds."""
    configuration.write_text(configuration.read_text() + LIMITS)


@pytest.mark.parametrize("kind", ["worker", "sweeper", "reconciler"])
async def test_a_daemon_behind_a_silent_database_line_says_so_goes_on_and_ends(desk: Desk, kind: str) -> None:
    hold = Hold()
    async with (
        Proxy(target(desk.spine.url), hold) as proxy,
        daemon(desk, through(desk.spine.url, proxy), kind, "run") as process,
    ):
        await until(lambda: desk.alive(kind), process.lines)
        hold.passing.clear()
        await process.said("database_away")
        hold.passing.set()
        await process.said("database_back")
        if kind == "worker":
            intent = await desk.pending("k")

            await until(lambda: desk.settled(intent), process.lines)
        hold.passing.clear()
        assert await process.end() == 0
    assert not any("Traceback" in line for line in process.lines), process.lines


async def test_a_silent_line_that_listens_is_noticed_and_made_anew(desk: Desk) -> None:
    hold = Hold(only_listener=True)
    async with (
        Proxy(target(desk.spine.url), hold) as proxy,
        daemon(desk, through(desk.spine.url, proxy), "worker", "run") as process,
    ):
        await process.said("listening")
        hold.passing.clear()
        await process.said("listener_away")
        intent = await desk.pending("k")

        await until(lambda: desk.settled(intent), "polling goes on without hints")
        hold.passing.set()
        before = len(process.lines)
        await until(lambda: any('"listening"' in line for line in process.lines[before - 1 :]), process.lines)
        assert await process.end() == 0


async def test_a_provider_that_is_silent_ends_with_its_deadline_and_so_does_the_worker(
    desk: Desk, configuration: Path
) -> None:
    hold = Hold()
    hold.passing.clear()
    async with Proxy(("127.0.0.1", int(desk.spine.bank.url.rpartition(":")[2])), hold) as proxy:
        move(configuration, desk.spine.bank.url, f"http://127.0.0.1:{proxy.port}")
        known = catalogue(f"http://127.0.0.1:{proxy.port}")
        desk.spine.acceptor = Acceptor(known.operations, known.providers)
        intent = await desk.pending("k")
        async with daemon(desk, desk.spine.url, "worker", "run") as process:
            await until(lambda: hold.held > 0, process.lines)
            assert await process.end() == 0
    call = next(json.loads(line) for line in process.lines if '"call"' in line)
    assert call["outcome"] == "ambiguous"
    assert (await desk.state(intent))[0] == "unknown"


@pytest.mark.parametrize("kind", ["api", "webhooks"])
async def test_what_serves_http_ends_behind_a_silent_line(desk: Desk, kind: str) -> None:
    hold = Hold()
    async with (
        Proxy(target(desk.spine.url), hold) as proxy,
        daemon(desk, through(desk.spine.url, proxy), kind, "run", *PORTS[kind]) as process,
    ):
        await until(lambda: any("istening on" in line or "running on" in line for line in process.lines), process.lines)
        hold.passing.clear()
        assert await process.end() == 0
