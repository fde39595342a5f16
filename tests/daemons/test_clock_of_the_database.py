"""A jump of the database's clock is told by the next heartbeat and shown by doctor; its usual course is not."""

from datetime import UTC, datetime, timedelta

import pytest
from fix_clock import stepped
from fix_spine import Spine
from structlog.testing import capture_logs

from idem.cli.doctor import clocks
from idem.outbox.daemon.daemon import Life
from idem.outbox.daemon.database_clock import DatabaseClock

pytestmark = pytest.mark.own_sessions


async def beats(spine: Spine, life: Life, times: int = 1) -> list[float]:
    """The jumps that so many heartbeats tell of, each on a session that has no older plan."""
    with capture_logs() as told:
        for _ in range(times):
            async with spine.database.connection() as connection:
                await connection.execute("DISCARD PLANS")
                await life.beat(connection)
    assert all("recover --lost" in each["do"] for each in told if each["event"] == "database_clock_jumped")
    return [each["seconds"] for each in told if each["event"] == "database_clock_jumped"]


@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_a_jump_is_told_once_and_kept_for_doctor(spine: Spine, db_url: str, seconds: int) -> None:
    life = Life("worker")
    assert await beats(spine, life, 3) == [] and await spine.all(clocks.JUMPED) == []
    with stepped(db_url, seconds):
        (jumped,) = await beats(spine, life, 3)
        assert abs(jumped - seconds) < 60
        (found,) = await spine.all(clocks.JUMPED)
        assert found["id"] == life.id and found["jumped"] == jumped
    (back,) = await beats(spine, life)
    assert abs(back + seconds) < 60


def test_what_the_way_there_and_back_may_explain_is_no_jump() -> None:
    clock, at = DatabaseClock(), datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.seen(at, 100.0, 100.1) is None
    assert clock.seen(at + timedelta(seconds=35), 105.0, 140.0) is None, "a statement that took half a minute"
    assert clock.seen(at + timedelta(hours=10, seconds=10), 36100.0, 36100.1) is None, "drift of many hours"
    assert clock.seen(at + timedelta(hours=11), 36105.0, 36105.1) == pytest.approx(3585, abs=40)
    assert clock.record(36106.0) is not None and clock.record(36106.0 + 2 * 86400) is None
