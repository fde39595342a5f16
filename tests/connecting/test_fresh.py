"""A connection of the pool that has just answered is taken as it is, unless the server has ended it meanwhile."""

import asyncio

import fix_database
import pytest
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.database import pool


async def test_a_connection_that_the_server_has_ended_is_not_given(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it would not be asked: its last word waits to be read."""
    monkeypatch.setattr(pool, "PROVEN", 1000)
    async with fix_database.connected(spine.url, size=1) as database:
        async with database.connection() as first:
            pid = first.info.backend_pid
        await spine.value("SELECT pg_terminate_backend(%(pid)s, 10000)", pid=pid)
        await until(lambda: not first.has_answered(1000))
        async with database.connection() as second:
            assert second.info.backend_pid != pid
            await second.execute("SELECT 1")


async def test_a_connection_is_fresh_from_its_last_answer_on(spine: Spine) -> None:
    async with fix_database.connected(spine.url, size=1) as database, database.connection() as one:
        await one.execute("SELECT 1")
        assert one.has_answered(1000)
        one._heard -= 1001
        assert not one.has_answered(1000)
        await one.execute("SELECT 1")
        assert one.has_answered(1000)


async def test_who_asks_next_gets_the_connection_that_was_used_last(spine: Spine) -> None:
    """So that an idle daemon of several connections need not ask each of them in turn whether it lives."""
    async with fix_database.connected(spine.url, size=3) as database:
        async with database.connection(), database.connection(), database.connection() as last:
            pid = last.info.backend_pid
        for _ in range(4):
            async with database.connection() as again:
                assert again.info.backend_pid == pid


async def test_a_connection_is_kept_at_hand_from_nobody_who_waits(spine: Spine) -> None:
    async with fix_database.connected(spine.url, size=1) as database:
        async with database.connection():
            waiting = asyncio.create_task(asked(database))
            await asyncio.sleep(0.1)
            assert not waiting.done()
        async with asyncio.timeout(2):
            assert await waiting == 1


async def test_a_connection_at_hand_goes_back_to_its_pool_after_a_while(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which closes those that are too old, and those that are too many."""
    monkeypatch.setattr(pool, "AT_HAND", 0)
    async with fix_database.connected(spine.url, size=1) as database:
        assert await asked(database) == 1
        assert database._at_hand is None
        assert database._pool.get_stats()["pool_available"] == 1


async def asked(database: pool.Database) -> int:
    async with database.connection() as connection:
        return int((await (await connection.execute("SELECT 1")).fetchall())[0][0])
