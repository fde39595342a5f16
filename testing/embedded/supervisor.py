"""The process that owns the server: detached, it exits after its last user.

It imports only the standard library; `idem.testing.embedded.users` starts it.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from idem.testing.embedded import address, locks, outages
from idem.testing.embedded.account import server_account
from idem.testing.embedded.cluster import Cluster
from idem.testing.embedded.errors import EmbeddedError
from idem.testing.embedded.postmaster import Postmaster
from idem.testing.embedded.relocation import programs_for

LOG = "pg.log"

_POLL_SECONDS = 0.1
_READY_POLL_SECONDS = 0.02
_LOCK_SECONDS = 2.0
_BACKENDS_GO_SECONDS = 30.0


class ServerSupervisor:
    """Keeps one server running while the home has users, restarts it if it dies, and makes outages on request."""

    def __init__(self, home: Path, cluster: Cluster, major: int, linger: float) -> None:
        self._home = home
        self._cluster = cluster
        self._major = major
        self._linger = linger
        self._users = locks.open_lock(home / locks.USERS)
        self._socket_dir = address.make_socket_dir(home, cluster.account)
        self._postmaster: Postmaster | None = None
        self._idle_since: float | None = None
        self._down_until = 0.0
        self._asked_to_end = False

    def end(self, *_: object) -> None:
        """Make `run` return soon. It is a signal handler, so it only sets a flag: an exception could lose a child."""
        self._asked_to_end = True

    def run(self) -> None:
        """Run the server until there has been no user for `linger` seconds, or a signal arrives.

        Raises EmbeddedError if the server cannot be started.
        """
        try:
            while not self._asked_to_end and not self._abandoned():
                if (seconds := outages.requested(self._home)) is not None:
                    self._stop()
                    self._down_until = time.monotonic() + seconds
                    outages.confirm(self._home)
                if self._postmaster and self._postmaster.exit_code is not None:
                    _say(f"postgres exited with code {self._postmaster.exit_code}; restarting it")
                    self._stop()
                if self._postmaster is None and time.monotonic() >= self._down_until:
                    self._start()
                time.sleep(_POLL_SECONDS)
        finally:
            self._stop()
            address.remove_socket_dir(self._socket_dir)

    def _abandoned(self) -> bool:
        if not locks.try_lock(self._users, locks.EXCLUSIVE):
            self._idle_since = None
            return False
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        if now - self._idle_since >= self._linger:
            return True  # and keep the lock: new users wait until this process has exited
        locks.unlock(self._users)
        return False

    def _start(self) -> None:
        deadline = time.monotonic() + _BACKENDS_GO_SECONDS
        while True:
            self._postmaster = Postmaster(self._cluster, self._socket_dir)
            if self._ready(self._postmaster):
                address.ServerAddress(
                    str(self._socket_dir), self._major, self._postmaster.pid, self._cluster.durable
                ).publish(self._home)
                return
            # The backends of a killed postmaster may outlive it for a moment, and postgres does not wait for them.
            if self._asked_to_end or not self._postmaster.found_stale_pid or time.monotonic() > deadline:
                code = self._postmaster.exit_code
                raise EmbeddedError(f"postgres exited with code {code} before it was ready (see its output above)")
            time.sleep(_POLL_SECONDS)

    def _ready(self, postmaster: Postmaster) -> bool:
        while postmaster.exit_code is None:  # recovery after a crash has no time limit
            if postmaster.is_ready():
                return True
            if self._asked_to_end:
                postmaster.stop()
            time.sleep(_READY_POLL_SECONDS)
        return False

    def _stop(self) -> None:
        address.withdraw(self._home)
        if self._postmaster:
            self._postmaster.stop()
            self._postmaster = None


def main(arguments: Sequence[str]) -> None:
    """Become the supervisor of a home. Arguments: home, folder of the programs, their major version, linger, durable or
    not.

    It never returns: the caller's child exits once the lock is taken, and the supervisor itself is its child.
    """
    home, bindir, major, linger, durable = arguments
    place = Path(home)
    lock = locks.open_lock(place / locks.SUPERVISOR)
    if not locks.wait_for(lock, locks.EXCLUSIVE, time.monotonic() + _LOCK_SECONDS):  # `is_held` takes it too
        sys.exit(f"another supervisor of {place} is already running")
    if os.fork():
        os._exit(0)  # a flock belongs to the open file, which the child has too, so it is always held
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    _log_to(place / LOG)
    try:
        account = server_account(place)
        programs = programs_for(account, Path(bindir))
        cluster = Cluster(place / f"pg{major}", programs, account, durable == "durable")
        cluster.make()
        outages.confirm(place)  # a request to a killed supervisor
        supervisor = ServerSupervisor(place, cluster, int(major), float(linger))
        for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(asked, supervisor.end)
        supervisor.run()
    except (EmbeddedError, OSError) as e:
        _say(str(e))
        sys.exit(1)


def _log_to(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.replace(path.with_suffix(".log.1"))  # the reason for an exit is often needed after the next start
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)


def _say(text: str) -> None:
    sys.stderr.write(f"idem: {text}\n")
    sys.stderr.flush()
