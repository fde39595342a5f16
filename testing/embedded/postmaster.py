"""Runs the server on a cluster as a child of this process."""

import os
import signal
import subprocess
from pathlib import Path

from idem.testing.embedded.address import PORT, clear_socket_dir
from idem.testing.embedded.binaries import ENVIRONMENT
from idem.testing.embedded.cluster import Cluster
from idem.testing.embedded.orphans import dies_with, recorded_pid, stop_orphan

_STOP_SECONDS = 60.0
_READY = "ready"


class Postmaster:
    """A running postgres. It is a child, not a daemon, so that its exit is noticed and leaves no zombie."""

    def __init__(self, cluster: Cluster, socket_dir: Path) -> None:
        """Start postgres on the cluster, listening only in `socket_dir`. Raises the errors of `stop_orphan`."""
        self._data = cluster.data
        stop_orphan(cluster.data)
        clear_socket_dir(socket_dir)
        stale = recorded_pid(cluster.data)
        self.found_stale_pid = stale is not None
        environment = dict(ENVIRONMENT)
        if stale is None:
            (cluster.data / "postmaster.pid").unlink(missing_ok=True)  # half-written: postgres would give up on it
        else:
            # The pid may belong to another program by now, and postgres would take that program for a running server.
            # It ignores its own ancestors, so with this variable it ignores the pid and still checks for live backends.
            environment["PG_GRANDPARENT_PID"] = str(stale)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(socket_dir),
            "port": str(PORT),
            "max_connections": "200",  # a demo runs many daemons, each with a pool
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not cluster.durable:
            # Not synchronous_commit or full_page_writes: a killed server must not lose what it has acknowledged.
            settings["fsync"] = "off"
        self._process = subprocess.Popen(
            [cluster.bindir / "postgres", "-D", cluster.data, *(f"--{name}={v}" for name, v in settings.items())],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            **cluster.account.switch,
            preexec_fn=dies_with(os.getpid()),
        )

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def is_ready(self) -> bool:
        """Whether it accepts connections, according to the pid file: pg_ctl itself waits for this line."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0].strip() == str(self.pid) and lines[7].strip() == _READY

    def stop(self) -> None:
        """Shut it down fast (it ends sessions and loses no commit) and wait until it has exited."""
        for sent, patience in ((signal.SIGINT, _STOP_SECONDS), (signal.SIGQUIT, _STOP_SECONDS), (signal.SIGKILL, None)):
            if self.exit_code is not None:
                return
            self._process.send_signal(sent)
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
