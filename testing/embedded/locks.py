"""Advisory file locks: the kernel releases them when their holder exits in any way."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from idem.testing.embedded.errors import EmbeddedError

USERS = "users.lock"  # every user holds it shared; the supervisor exits once it gets it exclusively
STARTER = "start.lock"  # its holder looks for a supervisor and starts one
SUPERVISOR = "supervisor.lock"  # the supervisor holds it as long as it lives

SHARED = fcntl.LOCK_SH
EXCLUSIVE = fcntl.LOCK_EX

_POLL_SECONDS = 0.02


def open_lock(path: Path) -> int:
    """Open a lock file, creating it if needed, and return its descriptor.

    Raises EmbeddedError if it cannot be opened, usually because the folder belongs to another account.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            if os.geteuid() == 0:
                # The owner of the folder could not open a lock file that belongs to root.
                owner = path.parent.stat()
                os.fchown(fd, owner.st_uid, owner.st_gid)
            return fd
        return os.open(path, flags)
    except OSError as e:
        raise EmbeddedError(
            f"cannot open {path} ({e.strerror}): if the folder belongs to another user, e.g. root, run as that user "
            "or remove the folder. If not, choose another folder, or set IDEM_DATABASE_URL"
        ) from e


def try_lock(fd: int, mode: int) -> bool:
    """Take the lock in this mode if it is free; returns whether it was taken."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Release the lock and keep the file open."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def wait_for(fd: int, mode: int, deadline: float) -> bool:
    """Take the lock in this mode, waiting until `deadline` (monotonic seconds); returns whether it was taken."""
    while not try_lock(fd, mode):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A lock file, open inside the block. Closing it releases the lock."""
    fd = open_lock(path)
    try:
        yield fd
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether any process, including this one, holds the lock."""
    with opened(path) as fd:
        return not try_lock(fd, SHARED)
