"""Tests hand their sessions on: if they did not, the suite would take half as long again, and no test would fail."""

import fix_database
import fix_kept
from fix_sql import query

PID = "SELECT pg_backend_pid()"


async def _session(db_url: str) -> int:
    async with fix_database.connected(db_url, of=fix_kept.KeptDatabase) as database, database.connection() as connection:
        return connection.info.backend_pid


async def test_a_daemon_s_session_is_handed_on(db_url: str) -> None:
    await _session(db_url)
    assert (kept := fix_kept.pids(db_url))
    assert await _session(db_url) in kept


def test_the_session_of_a_query_is_handed_on(db_url: str) -> None:
    assert query(db_url, PID) == query(db_url, PID)


async def test_none_is_handed_on_after_a_setting_of_the_database(db_url: str) -> None:
    await _session(db_url)
    kept = fix_kept.pids(db_url)
    (name,) = query(db_url, "SELECT current_database()")[0]
    query(db_url, f"ALTER DATABASE {name} SET work_mem = '8MB'")
    assert await _session(db_url) not in kept
