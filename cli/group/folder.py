"""The folder of `idem up`: its lock, and the database in it."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from idem.cli.group.up_note import LOCK
from idem.outbox.values.errors import OperatorRefused
from idem.testing.embedded import acquire, locks

LINGER = 0.5
"""Seconds that the embedded server stays after us; a longer wait would only delay the end."""
GONE = 30.0

_DATABASE = "database"


@contextlib.contextmanager
def claimed(home: Path) -> Iterator[None]:
    """Lock this folder until this process ends. Raises OperatorRefused, with its pid, if another `idem up` has it."""
    home.mkdir(parents=True, exist_ok=True)
    with locks.opened(home / LOCK) as lock:
        if not locks.try_lock(lock, locks.EXCLUSIVE):
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            raise OperatorRefused(
                f"another `idem up` runs in {home}" + (f" (process {holder})" if holder else "") + ". Use that one, "
                "stop it, or give another folder with --home and another --port"
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield


@contextlib.contextmanager
def embedded(home: Path) -> Iterator[str]:
    """Start the embedded database of this folder; at the end stop it and keep its data. Gives its URL.

    Raises EmbeddedError if the server cannot start.
    """
    with acquire(home / _DATABASE, linger=LINGER) as server:
        yield server.url
    until = time.monotonic() + GONE
    while locks.is_held(server.home / locks.SUPERVISOR) and time.monotonic() < until:
        time.sleep(0.05)
