"""Commands end behind a line that goes silent and stays open: `idem db` and `idem doctor` too."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fix_desk import Desk
from fix_line import SessionPooler, target, through
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from idem.cli.doctor import examination
from idem.migrations import runner, sessions, silence
from idem.migrations.runner import MigrationError
from idem.testing.proxy import Direction, Proxy, ProxyAction

GUARD = 60.0
"""Seconds, generous: what hangs is found by it."""


class Silent:
    """Swallows what the server says on a connection from its first statement of this text on."""

    def __init__(self, statement: bytes, *, first_only: bool = False) -> None:
        self._statement = statement
        self._first_only = first_only
        self.silent: set[int] = set()

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and self._statement in data and not (self._first_only and self.silent):
            self.silent.add(number)
        return "swallow" if direction == "to_client" and number in self.silent else "pass"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of `idem db` is doubted after a second."""
    monkeypatch.setattr(silence.Session, "silence", 1.0)
    monkeypatch.setattr(silence.Session, "patience", 5.0)


def current(url: str) -> Any:
    with sessions.engine(url).connect() as connection:
        return runner.schema(connection)


ENDS: dict[str, tuple[bytes, Callable[[str], Any]]] = {
    "current": (b"version_num", current),
    "grant": (b"pg_catalog", lambda url: runner.grant(url, "somebody", "daemon", [])),
    "upgrade": (b"version_num", lambda url: runner.upgrade(url, environment="test")),
    "nothing at all": (b"SELECT", current),
}


@pytest.mark.parametrize("everywhere", [True, False], ids=["all connections", "this connection"])
@pytest.mark.parametrize("what", ENDS)
async def test_idem_db_gives_up_a_silent_line(desk: Desk, soon: None, what: str, everywhere: bool) -> None:
    statement, run = ENDS[what]
    line = Silent(statement, first_only=not everywhere)
    async with Proxy(target(desk.spine.url), line) as proxy, asyncio.timeout(GUARD):
        with pytest.raises((OperationalError, MigrationError), match="gave up the connection"):
            await asyncio.to_thread(run, through(desk.spine.url, proxy))
    assert line.silent


@pytest.mark.parametrize("kind", [Proxy, SessionPooler])
async def test_idem_db_waits_for_a_server_that_works(desk: Desk, soon: None, kind: type[Proxy]) -> None:
    """An index of a large table says nothing for as long as it takes; a pooler in session mode changes nothing."""
    async with kind(target(desk.spine.url)) as proxy, asyncio.timeout(GUARD):

        def work() -> object:
            with sessions.engine(through(desk.spine.url, proxy)).connect() as connection:
                return connection.scalar(text("SELECT 1 FROM pg_sleep(4)"))

        assert await asyncio.to_thread(work) == 1
        assert proxy.connections > 1, "nobody asked whether the server works"
        assert not isinstance(proxy, SessionPooler) or proxy.named > 1


async def test_doctor_ends_where_connections_are_taken_and_nothing_is_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that is paused: each check would wait its whole time."""
    monkeypatch.setattr(examination, "CHECK_TIMEOUT", 1.0)
    async with Proxy(target(desk.spine.url), Silent(b"SET TRANSACTION READ ONLY")) as proxy:
        desk.environment["IDEM_DATABASE_URL"] = through(desk.spine.url, proxy)
        result = await desk.cli("doctor", "--json")
    found = [each for each in result.data["findings"] if each["check"] == "database"]
    assert result.code == 1
    assert len(found) == 1 and "accepts connections" in found[0]["what"]
    late = [each for each in result.data["findings"] if "could not be checked within" in each["what"]]
    assert 0 < len(late) <= 4
