"""`python -m idem.cli.group.leash PARENT GRACE MODULE [ARGUMENT …]`: run a module that does not outlive PARENT.

When the parent dies, however it does, the module is told to stop (SIGTERM) and has GRACE seconds to finish its calls;
with 0 it is killed at once. On Linux the kernel sends the signal; everywhere a thread watches for it as well.
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


def tie(parent: int, grace: float) -> None:
    """Have this process ended when its parent goes. The parent must have been started from a lasting thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM if grace else signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
    threading.Thread(target=_watch, args=(parent, grace), name="leash", daemon=True).start()


def _watch(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the module."""
    parent, grace, module, *rest = arguments
    tie(int(parent), float(grace))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
