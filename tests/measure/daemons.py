"""What the measures of whole daemons share: a server that logs its statements, a configuration, and processes."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
from fix_sql import query

from idem.testing.embedded import acquire

HERE = Path(__file__).parent
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Installation:
    """A database, and what its daemons have in their environment. `log`: what the server writes."""

    url: str
    environment: dict[str, str]
    log: Path

    def note(self) -> int:
        """Where the log of the server ends now."""
        return self.log.stat().st_size

    def statements(self, since: int) -> dict[str, Counter[str]]:
        """The statements since then, by the name of their session: how often each begins so."""
        found: dict[str, Counter[str]] = {}
        with self.log.open("rb") as file:
            file.seek(since)
            text = file.read().decode(errors="replace").replace("\n\t", " ")
        for line in text.splitlines():
            name, mark, rest = line.partition("|LOG:  ")
            kind, _, said = rest.partition(":")
            if mark and kind.split()[:1] in (["statement"], ["execute"]):
                found.setdefault(name, Counter())[" ".join(said.split())[:70]] += 1
        return found


@contextlib.contextmanager
def installation(*, application: bool = False, statements: bool = False) -> Iterator[Installation]:
    """A new database; with an application that does nothing, or with one provider over HTTP that nobody calls.

    `statements`: the server logs each of them.
    """
    home = Path(os.environ.get("IDEM_MEASURE_HOME", str(HERE.parent.parent / ".idem" / "measure")))
    with (
        tempfile.TemporaryDirectory() as folder,
        acquire(home, durable=True, linger=1) as server,
        fix_database.template(server.superuser_url) as template,
        fix_database.clone(server.superuser_url, template) as url,
    ):
        if statements:
            for setting in ("log_line_prefix = '%a|'", "log_statement = 'all'"):
                query(server.superuser_url, f"ALTER SYSTEM SET {setting}")
            query(server.superuser_url, "SELECT pg_reload_conf()")
        config = Path(folder, "idem.toml")
        desk = (HERE.parent / "desk_configuration.toml").read_text().replace("ORIGIN", "http://127.0.0.1:9")
        config.write_text('environment = "test"\n' if application else desk)
        environment = {name: each for name, each in os.environ.items() if not name.startswith("IDEM_")} | {
            "IDEM_DATABASE_URL": url, "IDEM_CONFIG": str(config), "IDEM_ENVIRONMENT": "test", "BANK_TOKEN": "t"
        }  # fmt: skip
        # What a start compiles is kept, as where idem is installed.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(home / "bytecode")
        if application:
            environment |= {"IDEM_APP": "noop:idem", "PYTHONPATH": str(HERE)}
        try:
            yield Installation(url, environment, home / "pg.log")
        finally:
            if statements:
                query(server.superuser_url, "ALTER SYSTEM RESET ALL")
                query(server.superuser_url, "SELECT pg_reload_conf()")


@contextlib.contextmanager
def running(at: Installation, *arguments: str) -> Iterator[int]:
    """`idem` with these arguments as a process; its pid. Ended in the end, and its code is 0."""
    command = [sys.executable, "-m", "idem.cli.main", *arguments, "--log-level", "warning"]
    process = subprocess.Popen(command, env=at.environment, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        if code := process.wait(60):
            raise SystemExit(f"{' '.join(arguments)}: exit code {code}")


def until(what: Callable[[], bool], seconds: float = 600.0, every: float = 0.02) -> None:
    """Wait for this."""
    ends = time.monotonic() + seconds
    while not what():
        if time.monotonic() > ends:
            raise SystemExit("it does not happen")
        time.sleep(every)


def cpu(pid: int) -> float:
    """CPU seconds of the threads of a process, by the scheduler's count: what wakes up for moments and sleeps again is
    counted wrongly by ticks of the clock."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def rss(pid: int) -> float:
    """Megabytes that a process has resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
