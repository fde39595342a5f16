"""A job of a bench in a process of its own. The job reads its order, prepares, waits for the parent, works, and reports
the time and CPU. So the figures hold nothing of its start.

The child's side is `order`, `ready`, `say` and `done`; the parent's is `Job`. They speak in lines over its pipes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from idem.cli.bench import usage
from idem.outbox.values.errors import IdemError

READY = "ready"


def order() -> dict[str, Any]:
    """The order that the parent has sent."""
    found: dict[str, Any] = json.loads(sys.stdin.readline())
    return found


def ready() -> None:
    """Say that all is prepared, and wait until the parent says to begin. Without a parent the process ends."""
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        raise SystemExit(1)


def say(**result: Any) -> None:
    """Tell the parent something."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def done(**result: Any) -> None:
    """Say what it took, with the memory of this process (`rss`), and keep all sessions until the parent has read what
    they used.
    """
    say(**result, rss=usage.resident([os.getpid()]))
    sys.stdin.readline()


class JobFailed(IdemError):
    """A job ended before it was done."""


def python(module: str) -> list[str]:
    """The command that runs one of our modules, and ends with this process."""
    return [sys.executable, "-m", "idem.cli.group.parent_watch", str(os.getpid()), "0", module]


class Job:
    """A running job. It is killed at the end of the block if it runs still; if this process is killed, the job ends
    where it next listens to its parent. `log` gets its standard error.
    """

    def __init__(
        self, command: Sequence[str], order: Mapping[str, Any], environment: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C goes to the bench alone, which then ends its jobs
            )
        self._say(json.dumps(order))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def prepared(self) -> None:
        """Wait until it is ready. Raises JobFailed."""
        if self._heard() != READY:
            raise self._failed()

    def begin(self) -> None:
        """Tell it to begin."""
        self._say("go")

    def result(self) -> dict[str, Any]:
        """Wait until it is done. Raises JobFailed."""
        found: dict[str, Any] = json.loads(self._heard())
        return found

    def end(self) -> None:
        """Let it end, and wait until it has, so that its sessions have too."""
        self._say("end")
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise self._failed()
        return line

    def _failed(self) -> JobFailed:
        said = self._log.read_text().strip().splitlines()
        return JobFailed(f"{self._log.stem} failed: {said[-1] if said else 'it said nothing'}")
