"""The daemons of a demo as real processes: started, killed with SIGKILL, started again, all gone at its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

POLL = 0.05
"""Seconds between two looks at the processes."""
RESTART = 0.3
"""Seconds until a daemon that was killed is started again; one that ended by itself waits longer each time."""
LONGEST_RESTART = 5.0
STOP = 6.0
"""Seconds that a daemon has to finish its calls at the end."""

BANK = "bank"
BANK_UP = 20.0


@dataclass
class Process:
    """One daemon, through all its lives."""

    name: str
    module: str
    arguments: Sequence[str]
    log: Path
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_again: float = 0.0
    killed: bool = False
    starts: int = 0
    failures: int = 0

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self.popen.pid if self.popen is not None and self.popen.poll() is None else None


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL."""

    at: float
    name: str
    pid: int


@dataclass
class Processes:
    """All processes of a demo, used from the thread that lives as long as it does.

    `reaped` is told the pid of each that is dead: the supervisor's word that it can do nothing any more.
    """

    folder: Path
    environment: Mapping[str, str]
    reaped: Callable[[str, int], None] = lambda host, pid: None
    kills: list[Kill] = field(default_factory=list)
    ended_alone: Counter[str] = field(default_factory=Counter)
    _all: dict[str, Process] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def daemons(self) -> list[Process]:
        """All but the bank, which belongs to somebody else."""
        return [process for process in self._all.values() if process.name != BANK]

    def start(self, name: str, module: str, *arguments: str) -> Process:
        """Start a process under this name; its output goes into a log of that name."""
        process = Process(name, module, arguments, self.folder / f"{name}.log")
        self._all[name] = process
        self._run(process)
        return process

    def start_bank(self, settings: Path) -> str:
        """Start the bank and return its URL. Raises RuntimeError if it does not say one."""
        process = self.start(BANK, "idem.testing.bank", str(settings))
        until = time.monotonic() + BANK_UP
        while time.monotonic() < until and process.pid is not None:
            for line in process.log.read_text().splitlines():
                if line.startswith("http://"):
                    return line
            time.sleep(POLL)
        raise RuntimeError(f"the bank does not start; its own words: {process.log.read_text()[-500:]}")

    def start_daemons(self, workers: int) -> None:
        """Start `workers` workers, a sweeper and a reconciler."""
        names = [*((f"worker-{n}", "worker") for n in range(1, workers + 1)), ("sweeper", "sweeper")]
        for name, kind in [*names, ("reconciler", "reconciler")]:
            self.start(name, "idem.cli.main", kind, "run", "--log", "json")

    async def tend(self) -> None:
        """Start again whatever is dead, until cancelled."""
        while True:
            now = time.monotonic()
            for process in self._all.values():
                if process.popen is None:
                    if now >= process.start_again:
                        self._run(process)
                elif process.popen.poll() is not None:
                    self._died(process, now)
            await asyncio.sleep(POLL)

    def kill(self, name: str) -> bool:
        """SIGKILL the process of this name; False if it is not running."""
        process = self._all[name]
        pid = process.pid
        if pid is None:
            return False
        process.killed = True
        os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(time.time(), name, pid))
        return True

    def stop(self) -> None:
        """End all processes: daemons first, with time to finish their calls, then the bank. Never raises."""
        daemons = [p.popen for p in self.daemons if p.popen is not None]
        bank = self._all.get(BANK)
        for group in (daemons, [bank.popen] if bank is not None and bank.popen is not None else []):
            _end(group)
        self._all.clear()

    def _run(self, process: Process) -> None:
        command = [sys.executable, "-m", "idem.cli.demo.leash", str(os.getpid()), process.module, *process.arguments]
        with process.log.open("ab") as log:
            process.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                # Ctrl-C is for the demo alone, which then ends its daemons in order.
                start_new_session=True,
            )
        process.killed = False
        process.started_at = time.monotonic()
        process.starts += 1

    def _died(self, process: Process, now: float) -> None:
        assert process.popen is not None
        self.reaped(socket.gethostname(), process.popen.pid)
        wait = RESTART
        if not process.killed:
            self.ended_alone[process.name] += 1
            process.failures = process.failures + 1 if now - process.started_at < 10 else 1
            wait = min(LONGEST_RESTART, RESTART * 2.0**process.failures)
        process.popen = None
        process.start_again = now + wait


def _end(group: Sequence[subprocess.Popen[bytes]]) -> None:
    for popen in group:
        with contextlib.suppress(ProcessLookupError):
            popen.terminate()
    until = time.monotonic() + STOP
    for popen in group:
        try:
            popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
