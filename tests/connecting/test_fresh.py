"""A connection of the pool that has just answered is taken as it is, unless the server has ended it meanwhile."""

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
        await spine.value("SELECT pg_terminate_backend(%(pid)s)", pid=pid)
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
