"""Behind a pooler in transaction mode nothing of idem begins, and nothing is left in sessions of others."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from doctor.pooled import through
from doctor.transaction_pooler import TransactionPooler
from fix_desk import Desk
from fix_line import target
from fix_processes import started
from fix_waiting import stopping
from psycopg.conninfo import conninfo_to_dict

from idem import Idem
from idem.errors import ConfigError
from idem.outbox.database import session
from idem.outbox.database.pool import Database
from idem.testing.proxy import Proxy

COMMANDS = (
    ("worker", "run"), ("sweeper", "run"), ("sweeper", "run", "--once"), ("reconciler", "run"), ("api", "run"),
    ("webhooks", "run"), ("reconcile", "--now"), ("status",), ("dlq", "list"), ("token", "list"),
)  # fmt: skip


@pytest.fixture(params=[1, 4], ids=["one server", "four servers"])
async def pooled(desk: Desk, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a pooler, which the desk uses."""
    if conninfo_to_dict(desk.spine.url).get("password"):
        pytest.skip("the pooler of this test can log in only where the server trusts it")
    async with TransactionPooler(target(desk.spine.url), request.param) as pooler:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, pooler.port)
        yield desk.environment["IDEM_DATABASE_URL"]


async def test_every_command_says_it_and_ends_with_2(desk: Desk, pooled: str) -> None:
    for command in COMMANDS:
        async with asyncio.timeout(60):
            result = await desk.cli(*command)
        assert (result.code, "pool_mode = session" in result.err) == (2, True), (command, result)
    # They have sessions of their own kind, and end as a refused migration does.
    for command in (("db", "check"), ("db", "current"), ("db", "upgrade"), ("db", "sync")):
        async with asyncio.timeout(60):
            result = await desk.cli(*command)
        assert (result.code, "pool_mode = session" in result.err) == (1, True), (command, result)
    shown = await _shown(pooled)
    assert {each["search_path"] for each in shown} == {'"$user", public'}
    assert {each["row_security"] for each in shown} == {"on"}
    assert {each["statement_timeout"] for each in shown} == {"0"}


async def test_the_supervisor_says_it_too(desk: Desk, pooled: str) -> None:
    async with started("run", "--no-api", env=desk.environment, stdout=PIPE, stderr=PIPE) as running:
        _, err = await asyncio.wait_for(running.communicate(), 90)
    assert (running.returncode, b"pool_mode = session" in err) == (2, True), err


async def test_what_the_library_opens_itself_says_it(desk: Desk, pooled: str, configuration: Path) -> None:
    said = pytest.raises(ConfigError, match="pool_mode = session")
    with closing(Idem(configuration, env=desk.environment)) as idem, said:
        await asyncio.to_thread(lambda: idem.background().call(idem.background().database()))


async def test_no_way_of_ours_sets_anything_there(pooled: str) -> None:
    with pytest.raises(ConfigError, match="transaction mode"):
        await session.connect(pooled, name="test")
    with pytest.raises(ConfigError, match="transaction mode"):
        await asyncio.to_thread(session.connect_sync, pooled, name="test")
    database = Database(pooled, name="test", size=1, timeouts=session.Timeouts(connect=2))
    await database.open()
    async with stopping(database):
        with pytest.raises(psycopg.OperationalError, match="transaction mode"):
            async with database.connection():
                pass
    assert {each["row_security"] for each in await _shown(pooled)} == {"on"}


async def test_a_line_that_keeps_sessions_is_used(desk: Desk) -> None:
    async with Proxy(target(desk.spine.url)) as proxy:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, proxy.port)
        assert (await desk.cli("sweeper", "run", "--once")).code == 0


async def _shown(url: str) -> list[dict[str, str]]:
    """What sessions of another program find, one after the other, each with the server that it is given."""
    found = []
    for _ in range(6):
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as other:
            rows = await (await other.execute("SELECT name, setting FROM pg_settings")).fetchall()
            found.append(dict(rows))
    return found
