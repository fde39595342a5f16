"""The folder in which the daemons of a group write their metrics, so that the API can show all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from idem.outbox.observe import daemon_events, metrics
from idem.testing.embedded import EmbeddedError, locks

PREFIX = "idem-metrics-"
LEFT = 600.0
"""Seconds after which the folder of a supervisor that was killed is removed: its daemons may have calls to finish."""

_LOCK = "supervisor"


@contextlib.contextmanager
def metrics_folder() -> Iterator[str]:
    """A fresh folder, removed at the end; those of supervisors that were killed go too.

    Names it to `idem.outbox.observe.metrics` of this process too, which must be loaded by now: the supervisor
    counts nothing and leaves no file of its own there. An empty name where there is no room for one: nothing else
    needs it.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = _made(stack)
        except (OSError, EmbeddedError) as error:
            daemon_events.no_metrics_folder(str(error))
            yield ""
            return
        os.environ[metrics.DIRECTORY] = folder
        stack.callback(os.environ.pop, metrics.DIRECTORY, None)
        yield folder


def _made(stack: contextlib.ExitStack) -> str:
    _clear_left_overs()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    locks.try_lock(stack.enter_context(locks.opened(Path(folder) / _LOCK)), locks.EXCLUSIVE)
    return folder


def _clear_left_overs() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, EmbeddedError):
            there = folder.lstat()
            ours = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
            if ours and time.time() - there.st_mtime > LEFT and not locks.is_held(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
