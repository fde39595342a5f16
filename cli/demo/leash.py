"""`python -m idem.cli.demo.leash PARENT MODULE [ARGUMENT …]`: run a module that dies with the process PARENT.

On Linux the kernel sends SIGKILL when the parent dies, however it does; everywhere a thread watches for it as well.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5


def tie(parent: int) -> None:
    """Have this process killed when its parent goes. The parent must have been started from a lasting thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), name="leash", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the module."""
    parent, module, *rest = arguments
    tie(int(parent))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
