"""Databases for tests: one template and a clone for each test; all are dropped at the end."""

import contextlib
import itertools
import secrets
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

PREFIX = "idem_pytest_"
"""The prefix of all names created here; eight hexadecimal digits follow, different in each run."""


HERE = """
UPDATE idem.installation SET database_name = d.datname, database_oid = d.oid
  FROM pg_catalog.pg_database d WHERE d.datname = current_database()
"""
"""Daemons refuse to work on a copy of a database; this statement makes the copy the installation's own database."""


class NoServer(Exception):
    """The server cannot be reached, or does not let this user create databases; the text says what to do."""


class LabDatabases:
    """The databases of one process of a test run, on a server where this user may create databases.

    Raises NoServer.
    """

    def __init__(self, url: str) -> None:
        self.url = urlunsplit(urlsplit(url)._replace(scheme="postgresql"))
        self._run = PREFIX + secrets.token_hex(4)
        self._numbers = itertools.count(1)
        try:
            # A heartbeat: databases whose run has no open connection of this name are left over and can be removed.
            self._alive = psycopg.connect(self.url, autocommit=True, connect_timeout=10, application_name=self._run)
        except psycopg.Error as error:
            raise NoServer(f"cannot reach the server for tests: {str(error).strip()}") from None
        self._template: str | None = None
        self._made: set[str] = set()
        self._remove_left_behind()

    def make_template(self, migrate: Callable[[str], None]) -> None:
        """Create the database that the others are clones of; `migrate` gets its URL. Raises the errors of `migrate`."""
        name = f"{self._run}_template"
        try:
            self._execute("CREATE DATABASE {}", name)
            self._made.add(name)
        except psycopg.errors.InsufficientPrivilege:
            raise NoServer("the user on the server for tests may not create databases. Grant it CREATEDB") from None
        self._template = name
        migrate(self._on(name))
        # An open connection, e.g. of a pool of the migrations, would prevent every clone.
        self._execute("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", name)
        self._alive.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])

    def clone(self) -> str:
        """The URL of a new clone of the template."""
        assert self._template is not None
        name = f"{self._run}_{next(self._numbers)}"
        self._execute("CREATE DATABASE {} TEMPLATE {}", name, self._template)
        self._made.add(name)
        url = self._on(name)
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(HERE)
        return url

    def drop(self, url: str) -> None:
        """Drop a clone, also if there are connections to it."""
        self._drop(urlsplit(url).path.removeprefix("/"))

    def close(self) -> None:
        """Drop the remaining databases, and end the heartbeat."""
        for name in sorted(self._made):
            self._drop(name)
        self._alive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        self._made.discard(name)

    def _on(self, name: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def _execute(self, statement: str, *names: str) -> None:
        if self._alive.closed:
            # A test may have restarted the server.
            self._alive = psycopg.connect(self.url, autocommit=True, connect_timeout=10, application_name=self._run)
        self._alive.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _remove_left_behind(self) -> None:
        for (name,) in self._alive.execute(LEFT_BEHIND, {"prefix": PREFIX}).fetchall():
            # Another process may be removing it.
            with contextlib.suppress(psycopg.Error):
                self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


LEFT_BEHIND = """
SELECT d.datname FROM pg_database d
 WHERE starts_with(d.datname, %(prefix)s) AND pg_get_userbyid(d.datdba) = current_user
   AND NOT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.application_name = left(d.datname, length(%(prefix)s) + 8))
"""
