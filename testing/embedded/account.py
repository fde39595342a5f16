"""The account the server runs as. PostgreSQL refuses to run as root, so root switches to another user."""

import contextlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idem.testing.embedded.binaries import ENVIRONMENT
from idem.testing.embedded.errors import EmbeddedError

_BORROWED = ("postgres", "nobody")


@dataclass(frozen=True)
class ServerAccount:
    """The account of the server programs, in the form that subprocess expects; all None for the caller's own."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None

    @property
    def switch(self) -> dict[str, Any]:
        """Arguments for subprocess, so that the program runs as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups}

    def own(self, path: Path) -> None:
        """Make this account the owner of `path`."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_enter(self, folder: Path) -> bool:
        """Whether this account can reach `folder`. The kernel decides; mode bits would be a guess.

        Raises EmbeddedError if the caller is root without the right to change accounts.
        """
        if self.uid is None:
            return True
        try:
            return self._exit_code(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]) == 0
        except PermissionError as e:  # a container's root without CAP_SETUID
            raise EmbeddedError(
                f"PostgreSQL does not run as root, and this root may not switch to '{self.name}'. Run as an ordinary "
                "user, or set IDEM_DATABASE_URL"
            ) from e

    def can_run(self, program: Path) -> bool:
        """Whether this account can start `program`: it runs `program --version`."""
        try:
            return self._exit_code([str(program), "--version"]) == 0
        except PermissionError:
            return False

    def _exit_code(self, command: list[str]) -> int:
        return subprocess.run(
            command,
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self.switch,
        ).returncode


def server_account(home: Path) -> ServerAccount:
    """The account that runs the server of this home: the caller's, or for root an account that is not root.

    For root it is the owner of an existing cluster (postgres refuses all others), or of the home; else `postgres`, else
    `nobody`. Creates no account.

    Raises EmbeddedError if there is no such account.
    """
    if os.geteuid() != 0:
        return ServerAccount()
    for place in (*home.glob("pg[0-9]*"), home):
        owner = place.stat().st_uid
        with contextlib.suppress(KeyError):
            if owner != 0:
                return _borrow(pwd.getpwuid(owner))
    for name in _BORROWED:
        with contextlib.suppress(KeyError):
            return _borrow(pwd.getpwnam(name))
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and this system has no account named {' or '.join(_BORROWED)}. Run as an "
        "ordinary user, or set IDEM_DATABASE_URL"
    )


def _borrow(entry: pwd.struct_passwd) -> ServerAccount:
    return ServerAccount(entry.pw_name, entry.pw_uid, entry.pw_gid, ())
