"""A pooler in session mode names another process than the server's; what asks for that process finds the right one."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from fix_line import SessionPooler, target, through
from fix_spine import Spine

from idem.outbox.database.pool import Database
from idem.outbox.database.pooler import server_of
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.values import clock
from idem.outbox.worker import claim, lost_claims


@pytest.fixture
async def pooled(spine: Spine) -> AsyncIterator[Database]:
    async with SessionPooler(target(spine.url)) as pooler:
        database = Database(through(spine.url, pooler), name="idem-test-pooled", size=2)
        await database.open()
        yield database
        await database.close()
        assert pooler.named


async def test_a_connection_knows_its_server(pooled: Database) -> None:
    async with pooled.connection() as connection:
        found = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
        assert found == (server_of(connection),) and server_of(connection) != connection.info.backend_pid == 1


async def test_a_claim_whose_answer_was_lost_is_found_when_it_commits(spine: Spine, pooled: Database) -> None:
    """Its statement still runs: the search goes on until its server has ended, and gives back what it has claimed."""
    spine.accepted()
    name, token = lane_scopes(spine.catalogue)["keyed", "keyed"][0], uuid4()
    async with pooled.connection() as connection:
        async with connection.transaction():
            assert await claim.claim(connection, name, token=token, holder="t", lease=60, limit=1, now=clock.boottime())
            searching = asyncio.create_task(
                lost_claims.recover_lost_claim(
                    spine.database, "keyed", "keyed", token, backend=server_of(connection), patience=60
                )
            )
            await asyncio.wait([searching], timeout=1)
            assert not searching.done()
        async with asyncio.timeout(60):
            (row,) = await searching
    assert row.token == token
