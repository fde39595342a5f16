"""A real PostgreSQL for every test: one template database for each run, one clone for each test.

`IDEM_TEST_DATABASE_URL` (a superuser's) selects a running server; otherwise the tests start an embedded one, without
fsync, with the programs of `IDEM_PG_BIN`, the wheel or the system.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import fix_kept
import psycopg
from fix_sql import query
from fix_waiting import stopping

from idem.migrations import runner
from idem.outbox.database.pool import Database, Timeouts
from idem.testing.databases import HERE
from idem.testing.embedded import acquire

ENVIRONMENT = "test"
_numbers = itertools.count(1)


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server on which this user may create databases."""
    if url := os.environ.get("IDEM_TEST_DATABASE_URL"):
        yield url
    else:
        home = os.environ.get("IDEM_TEST_HOME", str(Path(__file__).parent.parent / ".idem" / "test"))
        with acquire(home, durable=False, linger=1) as embedded:
            yield embedded.superuser_url


def on(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@cache
def _strategy(server: str) -> str:
    """How a database is copied. To log each page costs four times as much; servers before 15 copy files always."""
    new = query(server, "SELECT current_setting('server_version_num')::int >= 150000")[0][0]
    return "STRATEGY FILE_COPY" if new else ""


def create(server: str, name: str, options: str = "") -> None:
    """CREATE DATABASE, as a copy of files."""
    query(server, f"CREATE DATABASE {name} {options} {_strategy(server)}")


@contextmanager
def template(server: str) -> Iterator[str]:
    """The name of a database with the newest schema, to which no session stays connected."""
    name = f"idem_template_{os.getpid()}"
    create(server, name)
    runner.upgrade(on(server, name), environment=ENVIRONMENT)
    yield name
    for used in (name, *(clone.name for clone in _free)):
        dropped(server, used)


@contextmanager
def clone(server: str, template: str) -> Iterator[str]:
    """The URL of a database with the schema and no rows."""
    name = _cloned(server, template)
    yield on(server, name)
    dropped(server, name)


def _cloned(server: str, template: str) -> str:
    name = f"idem_test_{os.getpid()}_{next(_numbers)}"
    create(server, name, f"TEMPLATE {template}")
    fix_kept.lend(on(server, name))
    query(on(server, name), HERE)
    return name


def dropped(server: str, name: str) -> None:
    """DROP DATABASE, whoever is still connected to it."""
    fix_kept.end(on(server, name))
    query(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


# What a test may change besides rows: definitions, rights, settings of the database, statistics, its identity.
DEFINITIONS = Path(__file__).with_name("database_definitions.sql").read_text()
# The planner uses statistics and sizes: the rows of one test must not change the plans of the next.
USED = """
SELECT EXISTS (SELECT FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid
                WHERE c.relnamespace = 'idem'::regnamespace)
    OR (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
         WHERE relnamespace = 'idem'::regnamespace AND relkind = 'r') > %(most)s
"""
MOST = 4_000_000  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Clone:
    """A database for tests, and its definitions before the first test."""

    name: str
    definitions: str


_free: list[Clone] = []


def _made(server: str, template: str) -> Clone:
    name = _cloned(server, template)
    ((definitions,),) = query(on(server, name), DEFINITIONS)
    return Clone(name, definitions)


# Tables of an application that a test has created beside ours.
THEIRS = """
SELECT format('DROP TABLE public.%I CASCADE', relname)
  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""
OTHERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL (%(kept)s)
"""


def _is_left(own: psycopg.Connection, kept: list[int]) -> bool:
    """Whether all sessions of the test have ended but those that are kept, within 0.2 s."""
    for _ in range(10):
        if own.execute(OTHERS, {"kept": kept}).fetchone() == (0,):
            return True
        time.sleep(0.02)
    return False


def _wiped(server: str, used: Clone) -> bool:
    """Empty the tables for the next test. False: the test changed more than rows, or a session of it is still open."""
    url = on(server, used.name)
    with fix_kept.session(url) as own:
        own.autocommit = True
        own.execute("SET default_transaction_read_only = off")
        if not _is_left(own, fix_kept.pids(url)):
            return False
        if own.execute(USED, {"most": MOST}).fetchone() != (False,):
            return False
        if own.execute(DEFINITIONS).fetchone() != (used.definitions,):
            if not (tables := own.execute(THEIRS).fetchall()):
                return False
            for (drop,) in tables:
                own.execute(drop)
            if own.execute(DEFINITIONS).fetchone() != (used.definitions,):
                return False
        tables = own.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace"
            " AND relkind = 'r' AND relname NOT LIKE '%version%' AND relname <> 'installation'"
        ).fetchall()
        with own.transaction():
            own.execute("SET LOCAL session_replication_role = replica")
            own.execute(";".join(f"DELETE FROM idem.{table}" for (table,) in tables))
        return True


@contextmanager
def lent(server: str, template: str) -> Iterator[str]:
    """The URL of a database for one test: an emptied one if there is one, else a clone of the template."""
    mine = _free.pop() if _free else _made(server, template)
    yield on(server, mine.name)
    try:
        wiped = _wiped(server, mine)
    except psycopg.Error:
        wiped = False
    if wiped:
        _free.append(mine)
        return
    dropped(server, mine.name)


async def opened(
    url: str,
    *,
    size: int = 8,
    timeouts: Timeouts = Timeouts(lock=10, connect=10),  # noqa: B008
    of: type[Database] = Database,
) -> Database:
    """The daemons' connection pool to this database."""
    database = of(url, name="idem-test", size=size, timeouts=timeouts)
    await database.open()
    return database


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Database]:
    """The same, closed at the end."""
    async with stopping(await opened(url, **options)) as database:
        yield database
