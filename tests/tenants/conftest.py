"""An operator's desk, and ways to a database that can be counted and taken away."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from idem.outbox.database.pool import Database, Timeouts


class Counted(Database):
    """A database that counts how often somebody wanted a connection, and how many at once."""

    wanted = 0
    now = 0
    most = 0

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        self.wanted += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async with super().connection() as connection:
                yield connection
        finally:
            self.now -= 1


@pytest.fixture
async def counted(db_url: str) -> AsyncIterator[Counted]:
    """This test's database, counted."""
    database = Counted(db_url, name="idem-test-tenants", size=4, timeouts=Timeouts(connect=2))
    await database.open()
    yield database
    await database.close()


@contextlib.contextmanager
def away(superuser_url: str, db_url: str) -> Iterator[None]:
    """The database takes no connections, and those that stand are ended."""
    name = psycopg.conninfo.conninfo_to_dict(db_url)["dbname"]
    with psycopg.connect(superuser_url, autocommit=True) as admin:
        run: Any = admin.execute
        run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@pytest.fixture
def outage(superuser_url: str, db_url: str) -> Any:
    """`with outage():` the database is away."""
    return lambda: away(superuser_url, db_url)
