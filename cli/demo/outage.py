"""Stops PostgreSQL in the middle of a demo, and measures the daemons meanwhile."""

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from idem.cli.demo.processes import Processes
from idem.cli.group.children import Child
from idem.outbox.database import session
from idem.testing.embedded import Embedded, outage

RETURN = 30.0
"""Seconds for the server to restart, with recovery on a loaded disk."""
MOST_CPU = 0.05
"""Of one core, while the database is down."""
MOST_LINES = 1.0
"""Log lines a second and process, on average over the outage."""


@dataclass(frozen=True, slots=True)
class Calm:
    """What one daemon used while the database was down. `cpu` is None if it was not one process throughout, or if the
    system does not report it.
    """

    name: str
    seconds: float
    cpu: float | None
    lines: int

    @property
    def is_calm(self) -> bool:
        return (self.cpu is None or self.cpu <= MOST_CPU) and self.lines <= max(1.0, MOST_LINES * self.seconds)


async def take_away(embedded: Embedded, processes: Processes, seconds: float) -> list[Calm]:
    """Stop the server for `seconds` and restart it; returns what each daemon used meanwhile."""
    await asyncio.to_thread(outage, embedded, seconds, wait=False)
    began = time.monotonic()
    before = [(process, _sample(process)) for process in processes.daemons]
    await asyncio.sleep(max(0.0, seconds - 1.0))
    spent = time.monotonic() - began
    calm = [_calm(process, sample, spent) for process, sample in before]
    await asyncio.to_thread(_until_back, embedded, seconds + RETURN)
    return calm


def _until_back(embedded: Embedded, patience: float) -> None:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with contextlib.suppress(psycopg.OperationalError), session.connect_sync(embedded.url, name="idem demo"):
            return
        time.sleep(0.1)


def _sample(process: Child) -> tuple[int | None, float | None, int]:
    """The pid, the seconds of CPU and the lines of log so far."""
    assert process.log is not None
    lines = process.log.read_bytes().count(b"\n")
    return process.pid, None if process.pid is None else _cpu_seconds(process.pid), lines


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _calm(process: Child, before: tuple[int | None, float | None, int], seconds: float) -> Calm:
    (pid, spent, written), (now, cpu, lines) = before, _sample(process)
    share = None if pid != now or spent is None or cpu is None else (cpu - spent) / seconds
    return Calm(process.name, seconds, share, lines - written)
