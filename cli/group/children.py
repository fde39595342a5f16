"""Daemons as child processes: starts them, restarts them when they die, stops them in order. None outlives us."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from uuid import uuid4

from idem.outbox.daemon.daemon import LIFE
from idem.outbox.observe import telemetry
from idem.outbox.values.clock import boottime

RESTART = 0.3
"""Seconds before the restart of a killed process; one that exited by itself waits longer each time."""
SETTLED = 10.0
"""Seconds of life after which an exit does not count as a failed start, so that the waits begin again."""
_STANDARD_ERROR = 2
_CALLED_OFF = 5.0
"""Seconds for the children to stop after the supervisor itself has failed."""


@dataclass(frozen=True, slots=True)
class Death:
    """A process that has exited and can do nothing more.

    `code` is the exit code, or the negative signal; `started` is of `clock.boottime`; `life` is the unique word that
    it was started with; `again` is the seconds until the restart, None if there is none.
    """

    name: str
    pid: int
    code: int
    started: float
    life: str
    again: float | None = None
    host: str = field(default_factory=socket.gethostname)

    @property
    def how(self) -> str:
        """In words."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


@dataclass
class Child:
    """One daemon over all its restarts. `killed`: this process is stopped on purpose, which is not a failure."""

    name: str
    module: str
    arguments: Sequence[str]
    log: Path | None = None
    popen: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    life: str = ""
    start_again: float = 0.0
    killed: bool = False
    starts: int = 0
    failures: int = 0

    @property
    def pid(self) -> int | None:
        """The pid of the running process."""
        return self.popen.pid if self.popen is not None and self.popen.poll() is None else None


@dataclass
class Children:
    """All processes of a group. Use it from one thread that lives as long as they do.

    `folder`: where each writes its own log file; None: they share our standard error. `grace`: seconds to finish their
    calls if we die; 0: they die with us. It calls `died` at each exit and `born` at each start.
    """

    environment: Mapping[str, str]
    folder: Path | None = None
    grace: float = 0.0
    longest_wait: float = 5.0
    died: Callable[[Death], None] = lambda death: None
    born: Callable[[str, int], None] = lambda name, pid: None
    _all: dict[str, Child] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(_CALLED_OFF)

    @property
    def pids(self) -> dict[str, int]:
        """The running processes, by name."""
        return {child.name: child.pid for child in self._all.values() if child.pid is not None}

    def start(self, name: str, module: str, *arguments: str) -> Child:
        """Start a process under this name, and restart it until `stop`."""
        log = self.folder / f"{name}.log" if self.folder is not None else None
        child = self._all[name] = Child(name, module, arguments, log)
        self._run(child)
        return child

    def poll(self) -> None:
        """One round: notice processes that have died, and restart those whose wait is over."""
        now = boottime()
        for child in self._all.values():
            if child.popen is None:
                if now >= child.start_again:
                    self._run_again(child, now)
            elif (code := child.popen.poll()) is not None:
                self._died(child, child.popen.pid, code, now)

    def stop(self, stop_timeout: float, *, but: Collection[str] = ()) -> list[Death]:
        """Stop all processes with SIGTERM, except those named; kill those that still run after `stop_timeout` seconds.

        Returns the processes that exited here.
        """
        ending = [child for name, child in self._all.items() if name not in but]
        running = [(child, child.popen) for child in ending if child.popen is not None]
        for _, popen in running:
            with contextlib.suppress(ProcessLookupError):
                popen.terminate()
        until = boottime() + stop_timeout
        ended = []
        for child, popen in running:
            try:
                code = popen.wait(max(0.0, until - boottime()))
            except subprocess.TimeoutExpired:
                popen.kill()
                code = popen.wait()
            ended.append(Death(child.name, popen.pid, code, child.started, child.life))
        for child in ending:
            del self._all[child.name]
        return ended

    def _run(self, child: Child) -> None:
        watch = ["-m", "idem.cli.group.parent_watch", str(os.getpid()), f"{self.grace:g}"]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(child.log.open("ab")) if child.log is not None else None
            child.started, child.life = boottime(), uuid4().hex
            child.popen = subprocess.Popen(
                [sys.executable, *watch, child.module, *child.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log if log is not None else _STANDARD_ERROR,
                stderr=log,
                env={**self.environment, LIFE: child.life},
                # Ctrl-C goes to the supervisor only, which then stops its daemons in order.
                start_new_session=True,
            )
        child.killed = False
        child.starts += 1
        self.born(child.name, child.popen.pid)

    def _run_again(self, child: Child, now: float) -> None:
        try:
            self._run(child)
        except OSError as error:  # if the machine cannot start a process, the others must keep running
            telemetry.broken("supervisor", error, f"start of {child.name}")
            child.popen, child.start_again = None, now + self.longest_wait

    def _died(self, child: Child, pid: int, code: int, now: float) -> None:
        wait = RESTART
        if not child.killed:
            child.failures = child.failures + 1 if now - child.started < SETTLED else 1
            wait = min(self.longest_wait, RESTART * 2.0**child.failures)
        child.popen = None
        child.start_again = now + wait
        self.died(Death(child.name, pid, code, child.started, child.life, again=wait))
