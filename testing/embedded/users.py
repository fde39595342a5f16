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
_RETURN_SECONDS = 60.0  # how long a server may take to come back after an outage: recovery and a loaded disk
_LOG_LINES = 20

# Not `-m`: isolated mode (which keeps the caller's folder and PYTHON* out) would not find an idem that is only on
# PYTHONPATH. The caller's path comes last, so that no file in it can stand in for the standard library.
_SUPERVISOR = (
    "import sys; sys.path += sys.argv[1].split(':'); "
    "from idem.testing.embedded.supervisor import main; main(sys.argv[2:])"
)
# What a Python that is not installed in the usual place may need to start at all.
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass
class Embedded:
    """A hold on the running server. It stays up until the last hold is closed or its process is dead.

    A forked child shares the hold: the server stays for as long as either lives.
    """

    home: Path
    socket_dir: str
    port: int
    major: int
    server_pid: int
    _hold: int = field(repr=False)

    @property
    def url(self) -> str:
        """libpq and SQLAlchemy address of the database `idem`, as its owner `idem`, who may create databases."""
        return self._url("idem", "idem")

    @property
    def superuser_url(self) -> str:
        """The same for the superuser `postgres` in the database `postgres`."""
        return self._url("postgres", "postgres")

    def close(self) -> None:
        """Let go of the server. Closing twice is nothing."""
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
    """Start the server of this home, or join the one that runs. The first start makes the cluster.

    home: the folder of the cluster, made if need be; one server for each.
    linger: seconds that the server stays after its last user; the starter's value holds.
    timeout: seconds to wait for a server that accepts connections.
    durable: False starts without fsync, for tests: fast; a crash of the machine may lose the cluster, a killed server
        loses nothing.

    Raises EmbeddedError when no programs are found, the server does not start, is not there in time, or runs without
    fsync while `durable` is asked for.
    """
    deadline = time.monotonic() + timeout
    place = relocation.settle(Path(home), deadline)
    hold = locks.open_lock(place / locks.USERS)
    try:
        # First of all: with it held no supervisor ends. One that is ending holds it until its server is down.
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
    """Take the server away from all its users for `seconds`, and start it again in its place.

    Connections break and new ones are refused; holds, addresses and data stay. Returns when the server is back, or
    with `wait=False` when it is down. Sets `embedded.server_pid` when it waited.

    Raises EmbeddedError when the supervisor is gone, or the server does not come back.
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
            address.withdraw(place)  # the note of a supervisor that was killed
            started = _start_supervisor(place, linger, durable)
        if time.monotonic() > deadline:
            raise EmbeddedError(_late(place, timeout))
        time.sleep(_POLL_SECONDS)


def _start_supervisor(place: Path, linger: float, durable: bool) -> str:
    bindir, major = find_binaries()
    if not sys.executable:
        raise EmbeddedError("this Python does not know its own executable, which is required. Set IDEM_DATABASE_URL")
    # It returns when its child, the supervisor, has the lock and a log to complain to.
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
