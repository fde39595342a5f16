"""`python -m idem.cli.group.parent_watch PARENT GRACE MODULE [ARGUMENT …]`: run a module that does not outlive PARENT.

When the parent dies in any way, the module gets SIGTERM and has GRACE seconds to finish its calls; with 0 it is killed
at once. On Linux the kernel sends the signal; on every system a thread also watches for it.
"""

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
    """End this process when its parent exits. The parent must have started it from a long-lived thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM if grace else signal.SIGKILL)
    if os.getppid() != parent:  # it died before this call
        os._exit(1)
    threading.Thread(target=_watch, args=(parent, grace), name="parent-watch", daemon=True).start()


def _watch(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and run the module."""
    parent, grace, module, *rest = arguments
    tie(int(parent), float(grace))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
