"""Accept on the driver's cursor below SQLAlchemy: errors, lost connections and misuse are SQLAlchemy's as before."""

import asyncio
import gc
import sys
from typing import Any
from weakref import ref

import pytest
from accept.shop import Shop
from fix_sql import async_engine_of, engine_of, query
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from idem.application import driver_cursor
from idem.application.sqlalchemy_connections import SQLAlchemyAdapter
from idem.decisions import Accepted
from idem.errors import StoreUnavailable
from idem.outbox.database.notify import CommitHint, Nudge

BROKEN = "SELECT 1 / CAST(:number AS integer) AS broken"
ENDS = "SELECT pg_terminate_backend(CAST(:pid AS integer)) AS ended"
DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])


def test_a_connection_that_nobody_listens_to_is_asked_by_its_driver(shop: Shop) -> None:
    with shop.open() as connection:
        shop.acceptor.know(connection)
        assert driver_cursor.form_of(connection) is not None
        heard: list[str] = []
        event.listen(connection, "before_cursor_execute", lambda *said: heard.append(said[2]))
        assert driver_cursor.form_of(connection) is None
        assert isinstance(shop.accept(connection), Accepted)
        assert len(heard) == 1


def test_a_connection_that_logs_its_statements_logs_these(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "sqlalchemy.engine.Engine"), shop.open() as connection:
        assert driver_cursor.form_of(connection) is None


def test_a_hint_of_what_was_rolled_back_keeps_no_connection(shop: Shop) -> None:
    nudge = Nudge(shop.url)
    connection = engine_of(shop.url).connect()
    connection.begin()
    adapter = SQLAlchemyAdapter(connection)
    hint = CommitHint(nudge, "lane", adapter.ended)
    adapter.after_commit(hint)
    assert not hint.ended()
    connection.rollback()
    assert hint.ended()
    connection.close()
    seen = ref(connection)
    del connection, adapter
    gc.collect()
    assert seen() is None


@DRIVERS
async def test_an_error_is_that_of_sqlalchemy(shop: Shop, driver: str) -> None:
    async with async_engine_of(shop.url, driver).connect() as connection:

        def fails(sync: Connection) -> None:
            sync.begin()
            adapter = SQLAlchemyAdapter(sync)
            assert driver_cursor.form_of(sync) is not None
            with pytest.raises(DBAPIError, match="division by zero") as failed:
                adapter.row(BROKEN, {"number": 0})
            assert failed.value.statement is not None and "CAST" in failed.value.statement
            sync.rollback()
            sync.begin()
            assert SQLAlchemyAdapter(sync).row(BROKEN, {"number": 1}).broken == 1

        await connection.run_sync(fails)


@DRIVERS
async def test_a_connection_that_is_lost_is_invalidated(shop: Shop, driver: str) -> None:
    async with async_engine_of(shop.url, driver).connect() as connection:
        pid = await connection.scalar(text("SELECT pg_backend_pid()"))
        query(shop.url, "SELECT pg_terminate_backend(%(pid)s, 10000)", {"pid": pid})
        with pytest.raises(StoreUnavailable):
            await shop.acceptor.accept_async(connection, "t", "pay.keyed", "lost", {"amount": 100})
        assert connection.invalidated
        await connection.rollback()
        assert await connection.scalar(text("SELECT 1")) == 1


@DRIVERS
async def test_a_connection_that_was_cancelled_in_the_middle_is_invalidated(shop: Shop, driver: str) -> None:
    async with async_engine_of(shop.url, driver).connect() as connection:
        await connection.run_sync(shop.acceptor.know)
        with shop.engine.begin() as other:
            other.exec_driver_sql("LOCK TABLE idem.idempotency_keys")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await shop.acceptor.accept_async(connection, "t", "pay.keyed", "cut", {"amount": 100})
        assert connection.invalidated or connection.closed
    assert shop.rows("SELECT FROM idem.intents WHERE idempotency_key = 'cut'") == []


def test_a_savepoint_that_was_taken_back_takes_no_statement(shop: Shop) -> None:
    with shop.engine.connect() as connection, connection.begin():
        with connection.begin_nested() as savepoint:
            savepoint.rollback()
            with pytest.raises(InvalidRequestError, match="closed transaction inside context manager"):
                shop.accept(connection)
        assert isinstance(shop.accept(connection), Accepted)


def test_a_connection_has_one_listener_however_many_accepts_it_has(shop: Shop) -> None:
    told: list[int] = []

    def wake() -> None:
        told.append(1)

    with shop.engine.connect() as connection:
        for _ in range(5):
            with connection.begin():
                for _ in range(3):
                    SQLAlchemyAdapter(connection).after_commit(wake)
        assert len(list(connection.dispatch.commit)) == 1
    assert len(told) == 5


def test_an_accept_takes_few_steps(shop: Shop) -> None:
    """Functions of Python that one accept calls in the application's process, with SQLAlchemy's: it was about 410."""
    with shop.engine.connect() as connection:
        for number in range(8):
            with connection.begin():
                shop.accept(connection, f"warm{number}")
        calls = 0

        def called(_frame: Any, what: str, _argument: Any) -> None:
            nonlocal calls
            calls += what == "call"

        with connection.begin():
            sys.setprofile(called)
            try:
                shop.accept(connection, "counted")
            finally:
                sys.setprofile(None)
    assert calls < 300
