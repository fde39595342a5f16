"""Stops PostgreSQL in the middle of a demo, and measures the daemons meanwhile."""

from __future__ import annotations

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
    before = [_sample(process) for process in processes.daemons]
    await asyncio.sleep(max(0.0, seconds - 1.0))
    spent = time.monotonic() - began
    after = [_sample(process) for process in processes.daemons]
    await asyncio.to_thread(_until_back, embedded, seconds + RETURN)
    return [_calm(a, b, spent) for a, b in zip(before, after, strict=True)]


def _until_back(embedded: Embedded, patience: float) -> None:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with contextlib.suppress(psycopg.OperationalError), session.connect_sync(embedded.url, name="idem demo"):
            return
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    pid: int | None
    cpu: float | None
    lines: int


def _sample(process: Child) -> _Sample:
    pid = process.pid
    assert process.log is not None
    lines = process.log.read_bytes().count(b"\n")
    return _Sample(process.name, pid, None if pid is None else _cpu_seconds(pid), lines)


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _calm(before: _Sample, after: _Sample, seconds: float) -> Calm:
    cpu = None
    if before.pid == after.pid and before.cpu is not None and after.cpu is not None:
        cpu = (after.cpu - before.cpu) / seconds
    return Calm(before.name, seconds, cpu, after.lines - before.lines)
