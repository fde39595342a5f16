"""A server whose table of locks is full: a plain error that says what to do, and nothing is written or lost."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from accept.shop import ORDERS, Shop
from fix_accept import Acceptor
from fix_database import ENVIRONMENT, connected
from fix_sql import engine_of, query
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from idem.cli.base.failures import explain
from idem.decisions import Accepted
from idem.errors import StoreUnavailable
from idem.migrations import runner
from idem.outbox.api.store import Store
from idem.outbox.database.pool import REFUSED, Timeouts
from idem.outbox.http_server.problems import ProblemError
from idem.testing.embedded import acquire

FILL = "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 10000000) AS n"
GIVE_BACK = "SELECT count(pg_advisory_unlock(n)) FROM generate_series(1, %s) AS n"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: whoever else uses this one meets the same error."""
    with acquire(Path(tmp_path_factory.mktemp("locks")), durable=False, linger=0) as embedded:
        runner.upgrade(embedded.superuser_url, environment=ENVIRONMENT)
        query(embedded.superuser_url, ORDERS)
        yield embedded.superuser_url


@contextmanager
def full(url: str) -> Iterator[psycopg.Connection]:
    """While a session of somebody holds every lock that the server has room for."""
    with psycopg.connect(url, autocommit=True) as other:
        with pytest.raises(psycopg.errors.OutOfMemory):
            other.execute(FILL)
        yield other
        other.execute("SELECT pg_advisory_unlock_all()")


def test_a_bulk_accept_says_what_to_do_and_leaves_nothing_behind(own_server: str, acceptor: Acceptor) -> None:
    shop = Shop(own_server, acceptor)
    made = 0
    with shop.engine.connect() as bulk, full(own_server) as other:
        other.execute(GIVE_BACK, [200])
        with pytest.raises(StoreUnavailable) as told:
            for number in range(10_000):
                assert isinstance(shop.accept(bulk, f"k{number}"), Accepted)
                made += 1
        bulk.rollback()
    assert 0 < made < 10_000
    assert all(word in str(told.value) for word in ("53200", "1000 rows", "commit", "max_locks_per_transaction"))
    assert "SELECT" not in str(told.value)
    assert set(shop.counts().values()) == {0}
    assert isinstance(shop.once("k0"), Accepted)


@pytest.mark.quick
async def test_the_http_api_answers_503_and_goes_on(own_server: str) -> None:
    async with connected(own_server, size=1, timeouts=Timeouts(5, 5, 30, 5)) as database:
        store = Store(database, 5)
        with full(own_server), pytest.raises(ProblemError) as told:
            await store.run(lambda connection: connection.execute("SELECT pg_advisory_xact_lock(-1)"))
        assert (told.value.status, told.value.problem.code) == (503, "store_unavailable")
        async with asyncio.timeout(60):
            # A connection that was asked for meanwhile was refused too; the pool makes another one.
            while True:
                try:
                    found = await store.run(lambda connection: connection.execute("SELECT 1"))
                    break
                except ProblemError as error:
                    assert error.status == 503
        assert found.rowcount == 1


def test_a_daemon_takes_it_for_a_refusal_and_a_command_explains_it(own_server: str) -> None:
    with engine_of(own_server).connect() as connection, full(own_server), pytest.raises(OperationalError) as raised:
        connection.execute(text("SELECT pg_advisory_xact_lock(-1)"))
    assert isinstance(raised.value.orig, REFUSED)
    said, code = explain(raised.value) or ("", 0)
    assert code == 1 and "max_locks_per_transaction" in said and "Nothing was changed" in said
