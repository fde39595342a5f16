"""Daemons as processes whose surroundings a test can spoil: the clock, the log, the temporary folder, descriptors."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        """Move it so far from this machine's; negative: back."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self.file)


@pytest.fixture
def stepped(tmp_path: Path) -> Clock:
    """A wall clock of our own for child processes; it stands at this machine's time."""
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
    """`idem` with these arguments, in a process of its own; killed if the test leaves it behind."""

    def first() -> None:
        # A shell that runs tests in the background has them ignore these, and their children too.
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
        # Its pipes too: one that is left open is closed by nobody when the loop has gone.
        await process.communicate()
