"""Homes, users in processes of their own, and a look at what runs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_waiting import until_it_holds

from idem.testing.embedded import acquire

USER = """
import json, os, sys
from idem.testing.embedded import EmbeddedError, acquire
if "TEST_UMASK" in os.environ:
    os.umask(int(os.environ["TEST_UMASK"], 8))
try:
    pg = acquire(os.environ["TEST_HOME"], linger=float(os.environ["TEST_LINGER"]), durable=False)
except EmbeddedError as e:
    print(json.dumps({"error": str(e)}), flush=True)
    sys.exit(1)
told = {"url": pg.url, "superuser_url": pg.superuser_url, "home": str(pg.home), "socket_dir": pg.socket_dir}
print(json.dumps(told | {"server_pid": pg.server_pid, "major": pg.major}), flush=True)
sys.stdin.read()
pg.close()
"""


class User:
    """A process that holds the server until its standard input ends, which it does when the test's process does."""

    def __init__(
        self, home: Path, *, linger: float = 0.2, python: str = sys.executable, uid: int | None = None, **env: str
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-c", USER],
            env={**os.environ, **env, "TEST_HOME": str(home), "TEST_LINGER": str(linger)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
        self._told: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """What the user told of its server, once it has one; its complaint is `error`."""
        if not self._told:
            assert self.process.stdout is not None
            self._told = json.loads(self.process.stdout.readline() or "{}")
        return self._told[name]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self.process.communicate(timeout=30)


def processes_of(home: Path) -> dict[int, str]:
    """Every process that belongs to the server of this home, by its command line or its working directory."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("looks for processes in /proc")
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ")
            if command and (str(home) in command or str(home) in os.readlink(entry / "cwd")):
                found[int(entry.name)] = command
        except OSError:
            continue
    return found


def supervisor_of(home: Path) -> int:
    [pid] = [pid for pid, command in processes_of(home).items() if "idem.testing.embedded.supervisor" in command]
    return pid


def make_folder() -> Path:
    """A folder that every account can enter: pytest's own is shut to the account that the server of root runs as."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="idem-test-"))
    folder.chmod(0o755)
    return folder


def expect_nothing_left(folder: Path) -> None:
    """Fail if something of the servers in this folder is left now that their users are gone."""
    try:
        until_it_holds(lambda: not processes_of(folder))
    finally:
        for pid in processes_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = make_folder()
    yield folder
    expect_nothing_left(folder)
    shutil.rmtree(folder)


@pytest.fixture
def fresh_home(folder: Path) -> Path:
    """A home that is yet to be made."""
    return folder / "home"


@pytest.fixture(scope="module")
def made_home() -> Iterator[Path]:
    folder = make_folder()
    acquire(folder / "home", linger=0, durable=False).close()
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def home(made_home: Path) -> Iterator[Path]:
    """A home with a cluster in it and no server, which the tests of a module share: making one takes a second."""
    expect_nothing_left(made_home)
    yield made_home
    expect_nothing_left(made_home)


@pytest.fixture
def start_user(folder: Path, home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(home: Path, **options: Any) -> User:
        users.append(User(home, **options))
        return users[-1]

    yield start
    for user in users:
        user.kill()
        for stream in (user.process.stdin, user.process.stdout):
            if stream:
                stream.close()


@pytest.fixture(name="processes_of")
def _processes_of() -> Callable[[Path], dict[int, str]]:
    return processes_of


@pytest.fixture(name="supervisor_of")
def _supervisor_of() -> Callable[[Path], int]:
    return supervisor_of
