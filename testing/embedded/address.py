"""The address of the server: a folder for its socket, and a file for its users."""

import contextlib
import dataclasses
import hashlib
import json
import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from idem.testing.embedded import notes
from idem.testing.embedded.account import ServerAccount

PORT = 5432  # only part of the socket's name; the server opens no TCP port

_NOTE = "pg.json"
_LONGEST_PATH = 100  # a socket's path may have 107 bytes on Linux and 103 on macOS


@dataclass(frozen=True)
class ServerAddress:
    """A server that accepts connections."""

    socket_dir: str
    major: int
    server_pid: int
    durable: bool

    def publish(self, home: Path) -> None:
        """Write the address for the users of this home."""
        notes.leave(home / _NOTE, json.dumps(dataclasses.asdict(self)))


def withdraw(home: Path) -> None:
    """Remove the address: there is no server now."""
    (home / _NOTE).unlink(missing_ok=True)


def read(home: Path) -> ServerAddress | None:
    """The address of this home's server; None if no server listens there."""
    try:
        address = ServerAddress(**json.loads((home / _NOTE).read_text()))
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(f"{address.socket_dir}/.s.PGSQL.{PORT}")
    except (OSError, ValueError, TypeError):  # missing, half-written, or of another version
        return None
    return address


def make_socket_dir(home: Path, account: ServerAccount) -> Path:
    """A folder for the socket that only the server's account (and root) can enter.

    This folder, and no TCP listener, protect a server that trusts every connection.
    """
    inside = home / "run"
    # libpq and the server would split the path at a comma.
    short = len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= _LONGEST_PATH and not set(str(inside)) & set(",\"'")
    # Outside the home the name is always the same, so killed supervisors do not leave more and more folders.
    outside = Path("/tmp") / f"idem-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    for folder in (inside, outside) if short else (outside,):
        if _take(folder, account):
            return folder
    # Anyone can create names in /tmp, and the owner of the home can put a link into it.
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="idem-"))
    account.own(folder)
    return folder


def _take(folder: Path, account: ServerAccount) -> bool:
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        there, owner = folder.lstat(), os.geteuid() if account.uid is None else account.uid
        return stat.S_ISDIR(there.st_mode) and there.st_uid == owner and stat.S_IMODE(there.st_mode) == 0o700
    return True


def clear_socket_dir(socket_dir: Path) -> None:
    """Remove the files of a killed server: postgres gives up on a lock file whose pid is in use again."""
    for left in socket_dir.glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)


def remove_socket_dir(socket_dir: Path) -> None:
    """Remove the folder of a stopped server."""
    with contextlib.suppress(OSError):
        clear_socket_dir(socket_dir)
        socket_dir.rmdir()
