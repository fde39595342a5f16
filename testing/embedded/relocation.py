"""Moves cluster and programs if root runs them and the server's account cannot reach their folder.

A typical case is a clone under root's home (mode 0700). idem must not change its permissions, so cluster and programs
go to another folder, and a note stays in the first.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from idem.testing.embedded import locks, notes
from idem.testing.embedded.account import ServerAccount, server_account
from idem.testing.embedded.errors import EmbeddedError

ROOT_STATE = Path("/var/lib/idem")
NOTE = "MOVED"

_ENTERABLE = 0o711


def settle(home: Path, deadline: float) -> Path:
    """The folder with everything of this home: the home itself, or the folder that it is moved to.

    Creates the folder, and does not change the mode of an existing one. `deadline` is in monotonic seconds.
    Raises EmbeddedError if the folder cannot be created or there is no account to run as.
    """
    home = home.resolve()
    made = _make(home)
    if os.geteuid() != 0:
        return home
    # One permanent decision for all processes that race here: the note outlives a later change of the parents' modes.
    folder = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not locks.wait_for(folder, locks.EXCLUSIVE, deadline):
            raise EmbeddedError(f"another program has locked {home}. Find it with lsof {home}")
        if made:
            home.chmod(_ENTERABLE)  # the umask restricts mkdir's mode
        # Derived, not read from the note: root must not follow a path that another account can write.
        moved = ROOT_STATE / f"embedded-{_digest(str(home))}"
        if not ((home / NOTE).exists() and moved.exists()):
            if server_account(home).can_enter(home):
                return home
            _make_enterable(ROOT_STATE)
            _make_enterable(moved)
            notes.leave(home / NOTE, f"the server's account cannot enter this folder: the database is in {moved}\n")
        return moved
    finally:
        os.close(folder)


def programs_for(account: ServerAccount, bindir: Path) -> Path:
    """The programs in `bindir`, or a copy of them if `account` cannot run them there.

    Raises EmbeddedError if `account` cannot run the copy either.
    """
    if account.uid is None or (account.can_enter(bindir) and account.can_run(bindir / "initdb")):
        return bindir
    prefix = bindir.parent
    copy = ROOT_STATE / f"programs-{_digest(f'{bindir} {bindir.stat().st_mtime_ns}')}"
    # The wheel's programs look for their libraries three folders up, beside the package.
    bundled = prefix.parent.parent / f"{prefix.parent.name}.libs"
    if not copy.exists():
        _make_enterable(ROOT_STATE)
        aside = Path(tempfile.mkdtemp(dir=ROOT_STATE, prefix="copying-"))
        try:
            target = aside / prefix.parent.name / prefix.name
            for part in ("bin", "lib", "lib64", "share"):
                if (prefix / part).is_dir():
                    shutil.copytree(prefix / part, target / part, symlinks=True)
            if bundled.is_dir():
                shutil.copytree(bundled, aside / bundled.name)
            _open_to_all(aside)
            with contextlib.suppress(OSError):  # another home's supervisor was faster
                aside.rename(copy)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    copied = copy / prefix.parent.name / prefix.name / bindir.name
    if not account.can_run(copied / "initdb"):
        raise EmbeddedError(
            f"'{account.name}' can run neither the programs in {bindir} nor their copy in {copied}. Set IDEM_PG_BIN "
            "to programs that every account can run"
        )
    return copied


def _make(home: Path) -> bool:
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir()
    except FileExistsError as e:
        if not home.is_dir():
            raise EmbeddedError(f"{e.filename} is in the way: it is not a folder") from e
        return False
    except OSError as e:
        raise EmbeddedError(
            f"cannot create {home} ({e.strerror}). Choose a folder that you can write to, or set IDEM_DATABASE_URL"
        ) from e
    return True


def _make_enterable(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(_ENTERABLE)


def _open_to_all(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
