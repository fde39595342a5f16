"""CPU time and memory of processes of this machine, as Linux counts them in /proc. Elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")


def cpu(pids: Iterable[int]) -> float | None:
    """The CPU seconds of these processes together, user and system; None if one of them cannot be seen."""
    try:
        return sum(_times(pid)[0] for pid in pids)
    except (OSError, IndexError):
        return None


def resident(pids: Iterable[int]) -> int | None:
    """The bytes of memory that these processes hold (RSS), together."""
    total = 0
    try:
        for pid in pids:
            total += int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None
    return total


class ServerProcesses:
    """A PostgreSQL server whose processes run on this machine."""

    def __init__(self, postmaster: int) -> None:
        self._postmaster = postmaster

    @classmethod
    def of(cls, backend: int, database: str) -> ServerProcesses | None:
        """The server of this backend, which is connected to `database`; None if it does not run here.

        A process with this number may be another's: a backend's title names its database.
        """
        try:
            title = (PROC / str(backend) / "cmdline").read_bytes()
            if not title.startswith(b"postgres") or database.encode() not in title:
                return None
            return cls(_times(backend)[2])
        except (OSError, IndexError):
            return None

    def cpu(self, *, without: int) -> float:
        """The CPU seconds of all its processes, ended ones included, but of backend `without`."""
        own, ended, _ = _times(self._postmaster)
        total = own + ended
        for pid in self._children():
            if pid != without:
                with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                    # In nanoseconds; there are many, and the ticks of `stat` are 10 ms.
                    total += int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
        return total

    def _children(self) -> list[int]:
        path = PROC / str(self._postmaster) / "task" / str(self._postmaster) / "children"
        return [int(word) for word in path.read_text().split()]


def _times(pid: int) -> tuple[float, float, int]:
    """The CPU seconds of a process, those of its ended children, and its parent."""
    words = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    user, system, their_user, their_system = (int(word) for word in words[11:15])
    return (user + system) / _TICK, (their_user + their_system) / _TICK, int(words[1])
