"""The folder in which the daemons of a group write their metrics, so that the API can serve all of them."""

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
"""Seconds before the folder of a killed supervisor is removed: its daemons may still finish calls."""

_LOCK = "supervisor"


@contextlib.contextmanager
def metrics_folder() -> Iterator[str]:
    """A new folder, removed at the end; it also removes folders of killed supervisors.

    It also sets the folder for `idem.outbox.observe.metrics` of this process, which must be imported before: the
    supervisor counts nothing and leaves no file there. The name is empty if the folder cannot be created; nothing else
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
