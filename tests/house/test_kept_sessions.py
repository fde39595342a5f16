"""Tests hand their sessions on: if they did not, the suite would take half as long again, and no test would fail."""

import fix_database
import fix_kept
from fix_sql import query

PID = "SELECT pg_backend_pid()"


async def _kept(db_url: str) -> set[int]:
    """The server's processes that are kept after a daemon has used its pool."""
    async with fix_database.connected(db_url, of=fix_kept.KeptDatabase) as database, database.connection():
        pass
    return {*fix_kept.pids(db_url)}


async def test_a_daemon_s_session_is_handed_on(db_url: str) -> None:
    assert (before := await _kept(db_url))
    assert before <= await _kept(db_url)


def test_the_session_of_a_query_is_handed_on(db_url: str) -> None:
    assert query(db_url, PID) == query(db_url, PID)


def test_none_is_handed_on_after_a_setting_of_the_database(db_url: str) -> None:
    before = query(db_url, PID)
    (name,) = query(db_url, "SELECT current_database()")[0]
    query(db_url, f"ALTER DATABASE {name} SET work_mem = '8MB'")
    assert query(db_url, PID) != before
