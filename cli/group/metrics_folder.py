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

from idem.outbox import metrics
from idem.testing.embedded import EmbeddedError, locks

PREFIX = "idem-metrics-"
LEFT = 600.0
"""Seconds after which the folder of a supervisor that was killed is removed: its daemons may have calls to finish."""

_LOCK = "supervisor"


@contextlib.contextmanager
def metrics_folder() -> Iterator[str]:
    """A fresh folder, removed at the end; those of supervisors that were killed go too.

    Names it to `idem.outbox.metrics` of this process as well, which must be loaded by now: the supervisor counts
    nothing and leaves no file of its own there.
    """
    _clear_left_overs()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    os.environ[metrics.DIRECTORY] = folder
    try:
        with locks.opened(Path(folder) / _LOCK) as lock:
            locks.try_lock(lock, locks.EXCLUSIVE)
            yield folder
    finally:
        os.environ.pop(metrics.DIRECTORY, None)
        shutil.rmtree(folder, ignore_errors=True)


def _clear_left_overs() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, EmbeddedError):
            there = folder.lstat()
            ours = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
            if ours and time.time() - there.st_mtime > LEFT and not locks.is_held(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
