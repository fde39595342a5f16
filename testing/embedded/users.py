"""The handle of a user of the embedded PostgreSQL, and how to acquire it."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from idem.testing.embedded import address, locks, outages, relocation
from idem.testing.embedded.binaries import ENVIRONMENT, find_binaries
from idem.testing.embedded.errors import EmbeddedError

_POLL_SECONDS = 0.02
_RETURN_SECONDS = 60.0  # a server needs this long after an outage at most: recovery on a loaded disk
_LOG_LINES = 20

# Not `-m`: isolated mode (which ignores the caller's folder and PYTHON*) would not find an idem that is only on
# PYTHONPATH. The caller's path comes last, so that no file in it can replace the standard library.
_SUPERVISOR = (
    "import sys; sys.path += sys.argv[1].split(':'); "
    "from idem.testing.embedded.supervisor import main; main(sys.argv[2:])"
)
# A Python outside the usual place may need these to start at all.
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass
class Embedded:
    """A hold on the running server. The server runs until the last hold is closed or its process is dead.

    A forked child shares the hold: the server runs as long as either process lives.
    """

    home: Path
    socket_dir: str
    port: int
    major: int
    server_pid: int
    _hold: int = field(repr=False)

    @property
    def url(self) -> str:
        """The URL, for libpq and SQLAlchemy, of the database `idem`, as its owner `idem`, who may create databases."""
        return self._url("idem", "idem")

    @property
    def superuser_url(self) -> str:
        """The same for the superuser `postgres` in the database `postgres`."""
        return self._url("postgres", "postgres")

    def close(self) -> None:
        """Release the server. A second call does nothing."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _url(self, role: str, database: str) -> str:
        return f"postgresql://{role}@/{database}?host={quote(os.fsencode(self.socket_dir))}&port={self.port}"


def acquire(
    home: str | os.PathLike[str] = ".idem", *, linger: float = 5.0, timeout: float = 60.0, durable: bool = True
) -> Embedded:
    """Start the server of this home, or join the running one. The first start creates the cluster.

    home: the folder of the cluster, created if needed; each has its own server.
    linger: seconds that the server stays after its last user; the value of the first user counts.
    timeout: seconds to wait for a server that accepts connections.
    durable: False starts without fsync, for tests: fast; a crash of the machine may lose the cluster, a killed server
        loses nothing.

    Raises EmbeddedError if no programs are found, the server does not start or is not ready in time, or runs without
    fsync although `durable` is True.
    """
    deadline = time.monotonic() + timeout
    place = relocation.settle(Path(home), deadline)
    hold = locks.open_lock(place / locks.USERS)
    try:
        # First this lock: while it is held no supervisor exits. One that exits holds it until its server is down.
        if not locks.wait_for(hold, locks.SHARED, deadline):
            raise EmbeddedError(_late(place, timeout))
        with locks.opened(place / locks.STARTER) as starter:
            if not locks.wait_for(starter, locks.EXCLUSIVE, deadline):
                raise EmbeddedError(_late(place, timeout))
            server = _join_or_start(place, linger, timeout, deadline, durable)
        if durable and not server.durable:
            raise EmbeddedError(
                f"the server in {place} runs without fsync, for tests. Stop its users, or choose another folder"
            )
        return Embedded(place, server.socket_dir, address.PORT, server.major, server.server_pid, hold)
    except BaseException:
        os.close(hold)
        raise


def outage(embedded: Embedded, seconds: float, *, wait: bool = True) -> None:
    """Stop the server for all its users for `seconds`, and restart it at the same address.

    Connections break and new ones are refused; holds, addresses and data stay. Returns when the server runs again, or
    with `wait=False` when it is down. With `wait` it sets `embedded.server_pid`.

    Raises EmbeddedError if the supervisor is gone, or the server does not restart.
    """
    deadline = time.monotonic() + seconds + _RETURN_SECONDS
    outages.request(embedded.home, seconds)
    while outages.is_pending(embedded.home) or (wait and address.read(embedded.home) is None):
        if not locks.is_held(embedded.home / locks.SUPERVISOR) or time.monotonic() > deadline:
            raise EmbeddedError(
                f"the server in {embedded.home} did not stop for an outage, or did not restart\n{_log(embedded.home)}"
            )
        time.sleep(_POLL_SECONDS)
    if wait and (server := address.read(embedded.home)):
        embedded.server_pid = server.server_pid


def _join_or_start(place: Path, linger: float, timeout: float, deadline: float, durable: bool) -> address.ServerAddress:
    started: str | None = None
    while True:
        if locks.is_held(place / locks.SUPERVISOR):
            if server := address.read(place):
                return server
        elif started is not None:
            raise EmbeddedError(f"the embedded PostgreSQL in {place} does not start\n{started}{_log(place)}")
        else:
            address.withdraw(place)  # the address that a killed supervisor has left
            started = _start_supervisor(place, linger, durable)
        if time.monotonic() > deadline:
            raise EmbeddedError(_late(place, timeout))
        time.sleep(_POLL_SECONDS)


def _start_supervisor(place: Path, linger: float, durable: bool) -> str:
    bindir, major = find_binaries()
    if not sys.executable:
        raise EmbeddedError("this Python does not know its own executable, which is required. Set IDEM_DATABASE_URL")
    # It returns once its child, the supervisor, has the lock and a log to write to.
    path = ":".join(str(Path(p).absolute()) for p in sys.path)
    what = [str(place), str(bindir), str(major), str(linger), "durable" if durable else "fast"]
    launched = subprocess.run(
        [sys.executable, "-I", "-c", _SUPERVISOR, path, *what],
        env=ENVIRONMENT | {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    return launched.stderr


def _late(place: Path, timeout: float) -> str:
    return (
        f"the embedded PostgreSQL in {place} was not ready within {timeout:g} s. Try again with more time, or see "
        f"{place / 'pg.log'}\n{_log(place)}"
    )


def _log(place: Path) -> str:
    try:
        lines = (place / "pg.log").read_text(errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-_LOG_LINES:])
