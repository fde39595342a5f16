"""Commands find the database and the configuration of an `idem up` that runs in the same folder."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from idem.cli.base.output import say

HOME: Final = Path(".idem") / "up"
LOCK: Final = "up.lock"
NOTE: Final = "running.json"

URL: Final = "IDEM_DATABASE_URL"
FILE: Final = "IDEM_CONFIG"
APP: Final = "IDEM_APP"
ENVIRONMENT: Final = "IDEM_ENVIRONMENT"


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """What an `idem up` uses: the URL of its embedded database, the name of its environment, and its configuration."""

    database: str
    environment: str
    config: str | None = None
    app: str | None = None


def write_private(path: Path, text: str) -> None:
    """Replace a file, atomically, by one that only this user can read: it may hold a secret."""
    aside = path.with_suffix(".new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    aside.replace(path)


@contextlib.contextmanager
def noted(home: Path, running: RunningGroup) -> Iterator[None]:
    """Keep a note in the folder of `idem up` while it runs."""
    note = home / NOTE
    write_private(note, json.dumps(asdict(running)))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def found() -> RunningGroup | None:
    """The `idem up` that runs in this folder on its own database; None if there is none. It ignores a note of another
    user.
    """
    try:
        lock = os.open(HOME / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pass  # it locks its folder, so it runs
    else:
        return None
    finally:
        os.close(lock)
    try:
        with (HOME / NOTE).open() as file:
            return RunningGroup(**json.load(file)) if os.fstat(file.fileno()).st_uid == os.geteuid() else None
    except (OSError, ValueError, TypeError):
        return None


def take(config: Path | None) -> Path | None:
    """The configuration of a command with option `config`; without it, that of the `idem up` of this folder.

    This process then uses that database, and says so on standard error. An explicit database, or another configuration
    than that of `idem up`, selects another installation.
    """
    running = None if os.environ.get(URL) else found()
    if running is None or not running.database:
        return config
    said = config if config is not None else Path("idem.toml") if Path("idem.toml").exists() else None
    if said is not None and (running.config is None or said.absolute() != Path(running.config)):
        return config
    os.environ[URL] = running.database
    if running.environment and not os.environ.get(ENVIRONMENT):
        os.environ[ENVIRONMENT] = running.environment
    if running.app and not os.environ.get(APP):
        os.environ[APP] = running.app
    say(f"using the database of the `idem up` that runs here, in {HOME}; set {URL} to use another one")
    return config if running.config is None else Path(running.config)
