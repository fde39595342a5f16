"""Advisory file locks: the kernel releases them when their holder dies in any way."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from idem.testing.embedded.errors import EmbeddedError

USERS = "users.lock"  # shared by every user; the supervisor ends when it gets it alone
STARTER = "start.lock"  # one process at a time looks for a supervisor and starts one
SUPERVISOR = "supervisor.lock"  # held by the supervisor for as long as it lives

SHARED = fcntl.LOCK_SH
EXCLUSIVE = fcntl.LOCK_EX

_POLL_SECONDS = 0.02


def open_lock(path: Path) -> int:
    """Open a lock file, making it if need be, and return its descriptor.

    Raises EmbeddedError when it cannot be opened: the folder is another account's, as a rule.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            if os.geteuid() == 0:
                # A lock that root leaves in somebody's folder would shut its owner out of it.
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
    """Take the lock in this mode if that needs no waiting; say whether it was taken."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Give the lock back and keep the file open."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def wait_for(fd: int, mode: int, deadline: float) -> bool:
    """Take the lock in this mode, waiting until `deadline` (monotonic seconds); say whether it was taken."""
    while not try_lock(fd, mode):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A lock file, open for the length of the block. Closing it drops the lock."""
    fd = open_lock(path)
    try:
        yield fd
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether any process, this one included, holds the lock."""
    with opened(path) as fd:
        return not try_lock(fd, SHARED)
