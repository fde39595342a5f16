"""A PostgreSQL server for one test, with settings of its own and a data folder that can be restored."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fix_waiting import until_it_holds

from idem.migrations import runner
from idem.testing.embedded import find_binaries
from idem.testing.embedded.account import server_account
from idem.testing.embedded.address import PORT
from idem.testing.embedded.cluster import Cluster
from idem.testing.embedded.postmaster import Postmaster


@dataclass
class Server:
    """A server for one test, whose data folder can be copied and restored."""

    cluster: Cluster
    sockets: Path
    running: Postmaster | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/idem?host={self.sockets}&port={PORT}"

    def start(self) -> None:
        self.running = Postmaster(self.cluster, self.sockets)
        until_it_holds(self._is_ready, what="the server", seconds=120)

    def _is_ready(self) -> bool:
        assert self.running is not None and self.running.exit_code is None
        return self.running.is_ready()

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()

    def crash(self) -> None:
        """Stop it like a power cut, and restart it with the data that it had written."""
        assert self.running is not None
        self.running._process.send_signal(signal.SIGQUIT)
        self.running._process.wait(60)
        self.start()

    def copy(self, *, back: bool = False) -> None:
        """Copy the data folder of the stopped server, or restore the copy."""
        kept = self.cluster.data.with_name("kept")
        source, target = (kept, self.cluster.data) if back else (self.cluster.data, kept)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
        for each in (target, *target.rglob("*")):
            self.cluster.account.own(each)

    def backup(self) -> None:
        self.stop()
        self.copy()
        self.start()

    def restore(self) -> None:
        self.stop()
        self.copy(back=True)
        self.start()


@contextmanager
def own_server(settings: str = "") -> Iterator[Server]:
    """A running server with the newest schema. `settings`: lines of its postgresql.conf."""
    folder, _ = find_binaries()
    with tempfile.TemporaryDirectory(prefix="idem-own-", dir="/tmp") as place:
        home = Path(place)
        account = server_account(home)
        (home / "s").mkdir()
        for each in (home, home / "s"):
            account.own(each)
        server = Server(Cluster(home / "pg", folder, account, durable=False), home / "s")
        server.cluster.make()
        with (server.cluster.data / "postgresql.conf").open("a") as configuration:
            configuration.write(settings)
        server.start()
        try:
            runner.upgrade(server.url, environment="test")
            yield server
        finally:
            server.stop()
