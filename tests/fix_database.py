"""Real PostgreSQL for every test: one template database a run, one clone a test.

`IDEM_TEST_DATABASE_URL` (a superuser's) names a running server; `IDEM_TEST_CONTAINERS=1` starts one in a container;
otherwise an embedded one is started, without fsync, by the programs of `IDEM_PG_BIN`, the wheel or the system.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from idem.migrations import runner
from idem.outbox.database import Database, Timeouts
from idem.testing.embedded import acquire

ENVIRONMENT = "test"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server on which this user may create databases."""
    if url := os.environ.get("IDEM_TEST_DATABASE_URL"):
        yield url
    elif os.environ.get("IDEM_TEST_CONTAINERS") == "1":
        from testcontainers.postgres import PostgresContainer

        with PostgresContainer("postgres:16-alpine", driver=None) as container:
            yield container.get_connection_url()
    else:
        home = os.environ.get("IDEM_TEST_HOME", str(Path(__file__).parent.parent / ".idem" / "test"))
        with acquire(home, durable=False, linger=1) as embedded:
            yield embedded.superuser_url


@pytest.fixture(scope="session")
def superuser_url(server: str) -> str:
    """A superuser's URL: for roles, outages and looks at other sessions."""
    return server


def on(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a database with the newest schema, which nobody connects to."""
    name = f"idem_template_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        runner.upgrade(on(server, name), environment=ENVIRONMENT)
        yield name
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def clone(server: str, template: str) -> Iterator[str]:
    """A database with the schema and nothing in it."""
    name = f"idem_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    url = on(server, name)
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("UPDATE idem.installation SET database_name = current_database()")
    yield url
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def db_url(server: str, template: str) -> Iterator[str]:
    """A database of this test's own."""
    with clone(server, template) as url:
        yield url


@pytest.fixture
async def database(db_url: str) -> AsyncIterator[Database]:
    """The daemons' way to this test's database."""
    database = Database(db_url, name="idem-test", size=8, timeouts=Timeouts(lock=10, connect=10))
    await database.open()
    yield database
    await database.close()
