"""Where the server listens: a folder for its socket, and a note for its users."""

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

PORT = 5432  # only the name of the socket; no TCP port is taken

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
        """Tell the users of this home where the server is."""
        notes.leave(home / _NOTE, json.dumps(dataclasses.asdict(self)))


def withdraw(home: Path) -> None:
    """Tell the users of this home that there is no server now."""
    (home / _NOTE).unlink(missing_ok=True)


def read(home: Path) -> ServerAddress | None:
    """The address of this home's server; None while nothing listens there."""
    try:
        address = ServerAddress(**json.loads((home / _NOTE).read_text()))
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(f"{address.socket_dir}/.s.PGSQL.{PORT}")
    except (OSError, ValueError, TypeError):  # not there, half-written, or another version's
        return None
    return address


def make_socket_dir(home: Path, account: ServerAccount) -> Path:
    """A folder for the socket that nobody but the server's account (and root) can enter.

    This, with no TCP listener, is what guards a server that trusts whoever connects.
    """
    inside = home / "run"
    # A comma would part it in two for libpq and for the server.
    short = len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= _LONGEST_PATH and not set(str(inside)) & set(",\"'")
    # Outside, a name that is the same each time: a supervisor that was killed leaves nothing that piles up.
    outside = Path("/tmp") / f"idem-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    for folder in (inside, outside) if short else (outside,):
        if _take(folder, account):
            return folder
    # Anybody can make names in /tmp, and whoever owns the home can put a link into it.
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
    """Remove what a server that was killed has left there: postgres gives up on a lock with a number now in use."""
    for left in socket_dir.glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)


def remove_socket_dir(socket_dir: Path) -> None:
    """Remove the folder of a server that has ended."""
    with contextlib.suppress(OSError):
        clear_socket_dir(socket_dir)
        socket_dir.rmdir()
