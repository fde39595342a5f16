"""Finds and stops server processes that have outlived their supervisor."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from idem.testing.embedded.errors import EmbeddedError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

_STOP_SECONDS = 30.0


def dies_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends SIGINT when the process `parent`, which must be this one, dies in any way.

    SIGINT makes postgres shut down fast and initdb clean up. Only Linux can do this; on other systems `stop_orphan`
    does it at the next start.
    """

    def ask() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
            if os.getppid() != parent:  # the parent died before the call
                os._exit(1)

    return ask


def recorded_pid(data: Path) -> int | None:
    """The process id in the cluster's pid file; None if the file is missing or half-written."""
    try:
        return int((data / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def stop_orphan(data: Path) -> None:
    """Stop the postmaster that an earlier supervisor left running on this cluster, if there is one.

    Only the holder of the supervisor's lock may call it: then no other process can own that postmaster.
    Raises EmbeddedError if it does not stop.
    """
    pid = recorded_pid(data)
    if pid is None or not _is_postmaster(pid, data):
        return
    for sent in (signal.SIGINT, signal.SIGQUIT):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            if not _is_postmaster(pid, data):
                return
            time.sleep(0.05)
    raise EmbeddedError(f"an earlier PostgreSQL on {data} does not stop. Terminate process {pid}")


def _is_postmaster(pid: int, data: Path) -> bool:
    # By its command line: a container's root lacks the right to read /proc/PID/cwd.
    try:
        if sys.platform == "linux":
            command = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
        else:
            command = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout
    except OSError:
        return False
    return f"/postgres -D {data} " in command
