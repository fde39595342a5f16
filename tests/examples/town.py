"""What an example meets when a person runs it: its folder, a database, a bank, and processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import fix_sql
import psycopg

from idem.testing.bank import Bank

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AT = "http://127.0.0.1:8600"
"""Where the examples' bank listens; here it is on a port of its own."""
IDEM = (sys.executable, "-m", "idem.cli.main")


def listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Town:
    """`port` is free for the example's own server, and where the bank sends its events."""

    folder: Path
    url: str
    bank: Bank
    secret: str
    port: int
    environment: dict[str, str] = field(init=False)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
        self.environment = kept | {
            "IDEM_DATABASE_URL": self.url, "IDEM_ENVIRONMENT": "test", "BANK_TOKEN": "main-token",
            "BANK_WEBHOOK_SECRET": self.secret, "CARRIER_URL": self.bank.url, "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lay(self, *names: str) -> None:
        """The example's files, as they stand but for the bank's address."""
        for name in names:
            source = EXAMPLES / name
            if source.is_dir():
                shutil.copytree(source, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self.folder)
        config = self.folder / "idem.toml"
        assert AT in config.read_text()
        config.write_text(config.read_text().replace(AT, self.bank.url))

    def run(self, *command: str, input: str | None = None, code: int = 0) -> str:
        """Run a program to its end; what it said."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, input=input, timeout=60, capture_output=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def start(self, *command: str, stdout: int | IO[str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a program; it is stopped at the end of the module. What it says stands in `log.txt`."""
        with (self.folder / "log.txt").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, text=True, stderr=log,
                stdout=log if stdout is None else stdout, **options,
            )  # fmt: skip
        self.running.append(process)
        return process

    def daemons(self, app: str, *, handlers: int = 0) -> None:
        """Worker and reconciler, until they work and their handlers are known. `group` is all of them."""
        self._known(handlers, 2, [self.start(*IDEM, kind, "run", "--app", app) for kind in ("worker", "reconciler")])

    def group(self, app: str, *, handlers: int = 0) -> None:
        """`idem run --no-api --app …`, as the examples say it."""
        self._known(handlers, 3, [self.start(*IDEM, "run", "--no-api", "--app", app)])

    def _known(self, handlers: int, number: int, processes: list[subprocess.Popen[str]]) -> None:
        self.until(
            "SELECT count(*) >= %s AND (SELECT count(*) FROM idem.event_handlers) >= %s FROM idem.daemons",
            number, handlers, process=processes[0],
        )  # fmt: skip

    def serve(self, *command: str) -> None:
        """A server on `port`, until it takes connections."""
        self.wait(lambda: listens(self.port), process=self.start(*command))

    def until(self, question: str, *parameters: object, process: subprocess.Popen[str] | None = None) -> None:
        """Wait until this is true in the database."""
        with psycopg.connect(self.url, autocommit=True) as look:
            self.wait(lambda: bool((look.execute(question, parameters).fetchone() or [False])[0]), process=process)

    def wait(self, true: Callable[[], bool], *, process: subprocess.Popen[str] | None = None) -> None:
        until = time.monotonic() + 60
        while not true():
            ended = process is not None and process.poll() is not None
            assert not ended and time.monotonic() < until, f"it never came true:\n{self.said()}"
            time.sleep(0.05)

    def said(self) -> str:
        log = self.folder / "log.txt"
        return log.read_text()[-4000:] if log.exists() else ""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return fix_sql.query(self.url, query)

    def do(self, statement: str) -> None:
        fix_sql.query(self.url, statement)

    def effects(self) -> int:
        """Payments that the bank has made."""
        return len(self.bank.log.payments())

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
