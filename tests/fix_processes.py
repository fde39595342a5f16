"""Daemons as processes in a bad environment: the clock, the log, the temporary folder, file descriptors."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

STEPPING = '''
"""Every wall clock of Python reads this machine's, moved by the seconds in the file STEPPED_BY; no other clock does."""
import datetime, os, time

_time, _clock_gettime, _real = time.time, time.clock_gettime, datetime.datetime


def _step():
    with open(os.environ["STEPPED_BY"]) as file:
        return float(file.read() or 0)


class _Stepped(type(_real)):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _real)


class _Datetime(_real, metaclass=_Stepped):
    @classmethod
    def now(cls, tz=None):
        return _real.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return _real.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)


time.time = lambda: _time() + _step()
time.time_ns = lambda: int(time.time() * 1e9)
time.clock_gettime = lambda which: _clock_gettime(which) + (_step() if which == time.CLOCK_REALTIME else 0)
datetime.datetime = _Datetime
'''


@dataclass
class Clock:
    """The wall clock of the processes with this `environment`."""

    file: Path
    environment: dict[str, str]

    def step(self, seconds: float) -> None:
        """Move it by this interval from the machine's clock; negative: back."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self.file)


@pytest.fixture
def stepped(tmp_path: Path) -> Clock:
    """A wall clock for child processes that a test can move; it starts at the machine's time."""
    place = tmp_path / "clock"
    place.mkdir()
    place.joinpath("sitecustomize.py").write_text(STEPPING)
    clock = Clock(place / "step", {"PYTHONPATH": str(place), "STEPPED_BY": str(place / "step")})
    clock.step(0)
    return clock


@contextlib.asynccontextmanager
async def started(
    *arguments: str,
    env: Mapping[str, str],
    stdout: int = asyncio.subprocess.DEVNULL,
    stderr: Any = asyncio.subprocess.DEVNULL,
    prepare: Callable[[], None] = lambda: None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `idem` with these arguments in its own process; it is killed if the test does not end it."""

    def first() -> None:
        # If a shell runs the tests in the background, they and their children ignore these signals.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        prepare()

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.cli.main", *arguments, env=inherited | dict(env),
        stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr, preexec_fn=first,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        # This also closes its pipes, which the loop's end would leave open.
        await process.communicate()


@contextlib.asynccontextmanager
async def listening(
    environment: dict[str, str], daemon: str, *options: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient, list[str]]]:
    """`idem DAEMON run` as a process of its own, once it listens; a client of it, and what it said until then."""
    command = (sys.executable, "-m", "idem.cli.main", daemon, "run", "--port", "0", *options)
    running = await asyncio.create_subprocess_exec(
        *command, env=os.environ | environment, stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    said: list[str] = []
    try:
        while not (found := re.search(r"listening on (http://\S+)", said[-1] if said else "")):
            line = await asyncio.wait_for(running.stderr.readline(), 30)
            assert line, said
            said.append(line.decode())
        async with httpx.AsyncClient(base_url=found[1], timeout=30, trust_env=False, verify=False) as http:
            yield running, http, said
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()
