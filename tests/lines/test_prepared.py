"""A statement that each connection prepares once: it reads and fails as psycopg's own way does."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_line import target as address
from fix_line import through

from idem.outbox.database import session
from idem.outbox.database.prepared import PreparedStatement
from idem.outbox.database.server_errors import DatabaseAway
from idem.testing.proxy import Direction, Proxy, ProxyAction

LONG = 10.0
ECHO = PreparedStatement("test_echo", """
SELECT CAST(:text AS text) AS text, CAST(:bytes AS bytea) AS bytes, CAST(:id AS uuid) AS id,
       CAST(:yes AS boolean) AS yes, CAST(:number AS double precision) AS number,
       CAST(:json AS jsonb) AS json, CAST(:none AS text) AS none,
       ARRAY[CAST(:text_again AS text), NULL] AS list, CAST(7 AS bigint) AS whole
""")  # fmt: skip
VALUES: dict[str, Any] = {
    "text": "ä'\\", "bytes": b"\x00\xff\\x", "id": UUID(int=5), "yes": True, "number": 0.1, "json": '{"a": 1}',
    "none": None, "text_again": 'a,"b',
}  # fmt: skip


async def test_values_go_there_and_back(db_url: str) -> None:
    async with await session.connect(db_url, name="test") as line:
        for number in range(3):
            row = await ECHO.row(line, {**VALUES, "number": number / 3}, LONG)
            found = (row.text, row.bytes, row.id, row.yes, row.json, row.none, row.whole)
            assert found == ("ä'\\", b"\x00\xff\\x", UUID(int=5), True, '{"a": 1}', None, 7)
            assert (row.number, row.list) == (number / 3, ['a,"b', None])


async def test_a_row_that_is_not_there_is_none(db_url: str) -> None:
    nothing = PreparedStatement("test_nothing", "SELECT 1 WHERE CAST(:yes AS boolean)")
    async with await session.connect(db_url, name="test") as line:
        assert await nothing.row(line, {"yes": False}, LONG) is None


async def test_a_text_with_nul_is_refused_and_not_cut(db_url: str) -> None:
    async with await session.connect(db_url, name="test") as line:
        with pytest.raises(psycopg.DataError, match="NUL"):
            await ECHO.row(line, {**VALUES, "text": "abc\0def"}, LONG)
        assert (await ECHO.row(line, VALUES, LONG)).whole == 7


async def test_what_was_taken_back_is_prepared_again(db_url: str) -> None:
    async with await session.connect(db_url, name="test") as line:
        await ECHO.row(line, VALUES, LONG)
        await line.execute("DEALLOCATE ALL")
        assert (await ECHO.row(line, VALUES, LONG)).whole == 7


async def test_an_error_of_the_statement_leaves_the_line_as_it_was(db_url: str) -> None:
    fails = PreparedStatement("test_fails", "SELECT 1 / CAST(:number AS integer)")
    async with await session.connect(db_url, name="test") as line:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await fails.row(line, {"number": 0}, LONG)
        assert (await ECHO.row(line, VALUES, LONG)).whole == 7
        assert await (await line.execute("SELECT 1")).fetchone() == (1,)


async def test_more_than_the_kernel_takes_at_once(db_url: str) -> None:
    size = PreparedStatement(
        "test_size", "SELECT length(CAST(:bytes AS bytea)) AS size, CAST(:bytes_again AS bytea) AS all"
    )
    much = bytes(range(256)) * 40_000
    async with await session.connect(db_url, name="test") as line:
        row = await size.row(line, {"bytes": much, "bytes_again": much}, LONG)
        assert (row.size, row.all) == (len(much), much)


async def test_a_session_that_is_ended_is_a_database_that_is_away(db_url: str) -> None:
    ends = PreparedStatement("test_ends", "SELECT pg_terminate_backend(pg_backend_pid())")
    async with await session.connect(db_url, name="test") as line:
        with pytest.raises(DatabaseAway):
            await ends.row(line, {}, LONG)
        assert line.closed


@pytest.mark.parametrize("what", ["no answer", "cancelled"])
async def test_a_line_that_is_given_up_is_not_used_again(db_url: str, what: str) -> None:
    sleeps = PreparedStatement("test_sleeps", "SELECT pg_sleep(60)")
    asked = asyncio.Event()

    def silent(_: int, direction: Direction, data: bytes) -> ProxyAction:
        if b"test_sleeps" in data:
            asked.set()
        return "pass"

    async with Proxy(address(db_url), silent) as proxy:
        line = await session.connect(through(db_url, proxy), name="test")
        waiting = asyncio.create_task(sleeps.row(line, {}, 0.2 if what == "no answer" else LONG))
        await asyncio.wait_for(asked.wait(), LONG)
        if what == "cancelled":
            waiting.cancel()
        with pytest.raises(DatabaseAway if what == "no answer" else asyncio.CancelledError):
            await waiting
        with pytest.raises(psycopg.OperationalError):
            await line.execute("SELECT 1")
        await line.close()
