"""The database and the folder of a demo, both removed afterwards."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from idem.cli.demo.settings import DemoSettings
from idem.errors import ConfigError
from idem.outbox.database import session
from idem.outbox.database.address import libpq
from idem.testing.embedded import Embedded, acquire

PREFIX = "idem_demo_"
LINGER = 0.5
"""Seconds that the embedded server stays after the demo."""


@contextlib.contextmanager
def server(settings: DemoSettings) -> Iterator[tuple[str, Embedded | None]]:
    """The URL of a server for the demo, and the embedded server if it is used."""
    if settings.database_url is not None:
        yield _checked(settings.database_url), None
        return
    with acquire(settings.home, linger=LINGER) as embedded:
        yield embedded.url, embedded


def _checked(url: str) -> str:
    try:
        libpq(url)
        conninfo_to_dict(libpq(url))
    except (ValueError, psycopg.ProgrammingError):
        # Not quoted: it may contain a password.
        raise ConfigError(
            "--database-url: not a URL of a PostgreSQL server. Write postgresql://user:password@host:5432/name"
        ) from None
    return libpq(url)


@contextlib.contextmanager
def database(url: str) -> Iterator[str]:
    """Create a database on this server and give its URL; drop it at the end, with those of killed demos.

    Raises ConfigError if the role may not create a database.
    """
    name = f"{PREFIX}{os.getpid()}_{int(time.time())}"
    with session.connect_sync(url, name="idem demo") as admin:
        _drop_left_overs(admin)
        try:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege:
            raise ConfigError(
                "the demo makes a database of its own, and this role may not: ALTER ROLE … CREATEDB, or leave "
                "--database-url out for an embedded server"
            ) from None
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        # If the server is gone, so are its databases, or the next demo drops them.
        with contextlib.suppress(psycopg.Error), session.connect_sync(url, name="idem demo") as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def folder(home: Path) -> Path:
    """A new folder for the files of one demo."""
    runs = home / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs)).absolute()


def _drop_left_overs(admin: psycopg.Connection) -> None:
    named = admin.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (PREFIX.replace("_", r"\_") + "%",))
    for (name,) in named.fetchall():
        pid = name.removeprefix(PREFIX).partition("_")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            with contextlib.suppress(psycopg.Error):
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True
