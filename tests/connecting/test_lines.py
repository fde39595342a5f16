"""A line over a network without TLS is said: by doctor, and in the log of each start."""

import asyncio

import pytest
from fix_desk import Desk
from fix_line import target
from psycopg.conninfo import conninfo_to_dict

from idem.outbox.database import encryption, session
from idem.testing.proxy import Proxy


class Reachable(Proxy):
    """One that is reached by an address which is no loopback one: the kernel takes 0.0.0.0 for this machine."""

    host = "0.0.0.0"


async def test_a_line_in_the_clear_is_named(desk: Desk) -> None:
    if conninfo_to_dict(desk.spine.url).get("password"):
        pytest.skip("through this line only where the server trusts us")
    parts = conninfo_to_dict(desk.spine.url)
    async with Reachable(target(desk.spine.url)) as proxy:
        for host, told in (("0.0.0.0", True), ("127.0.0.1", False)):
            url = f"postgresql://{parts['user']}@{host}:{proxy.port}/{parts['dbname']}?sslmode=disable"
            desk.environment["IDEM_DATABASE_URL"] = url
            checked = await desk.cli("doctor", "--json")
            (found,) = [each for each in checked.data["findings"] if each["check"] == "encryption"]
            assert (found["level"], "is not encrypted" in found["what"]) == ("warning" if told else "ok", told)
            started = await desk.cli("sweeper", "run", "--once", code=0)
            assert ("database_not_encrypted" in started.err, f"host={host}" in started.err) == (told, told), started


async def test_a_socket_needs_no_tls(desk: Desk) -> None:
    if not str(conninfo_to_dict(desk.spine.url).get("host", "")).startswith("/"):
        pytest.skip("this server has no socket here")
    async with asyncio.timeout(30), await session.connect(desk.spine.url, name="test") as connection:
        assert encryption.readable(connection) is None


async def test_a_wait_for_notifications_ends_and_the_line_stays(desk: Desk) -> None:
    """A listener asks again after a while without any: that is no outage, and it keeps its session."""
    async with await session.connect(desk.spine.url, name="test") as connection:
        await connection.execute("LISTEN nothing_comes")
        assert [each async for each in connection.notifies(timeout=0.1, stop_after=1)] == []
        assert not connection.closed
        await connection.execute("SELECT 1")
