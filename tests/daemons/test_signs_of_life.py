"""A process whose heartbeats fail says so itself, because everybody else counts it as dead."""

import asyncio

import psycopg
import pytest
from fix_sql import query
from fix_waiting import until
from structlog.testing import capture_logs

from idem.outbox.daemon import daemon
from idem.outbox.daemon.daemon import Life
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.observe import metrics


def missed() -> float:
    found: float = metrics.HEARTBEATS_MISSED.labels("worker")._value.get()
    return found


async def test_signs_of_life_that_fail_are_told_by_the_process(db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "HEARTBEAT", 0.02)
    database = Database(db_url, name="test", timeouts=Timeouts(lock=0.05))
    await database.open()
    life, stop = Life("worker"), asyncio.Event()
    async with database.connection() as connection:
        await life.beat(connection)
    with capture_logs() as lines:
        with psycopg.connect(db_url) as other:
            other.execute("SELECT FROM idem.daemons WHERE id = %s FOR UPDATE", [life.id])
            living = asyncio.create_task(life.run(database, stop))
            await until(lambda: missed() >= daemon.LOST + 2)
            other.rollback()
        await until(lambda: not missed())
        stop.set()
        await living
    told = [line["event"] for line in lines if line["event"].startswith("heartbeat_")]
    assert told == ["heartbeat_lost", "heartbeat_back"]
    assert lines[0]["sqlstate"] == "55P03"
    await database.close()


async def test_a_daemon_whose_record_is_locked_ends_cleanly_all_the_same(db_url: str) -> None:
    database = Database(db_url, name="test", timeouts=Timeouts(lock=0.05))
    await database.open()
    life = Life("worker")
    async with database.connection() as connection:
        await life.beat(connection)
    with psycopg.connect(db_url) as other:
        other.execute("SELECT FROM idem.daemons WHERE id = %s FOR UPDATE", [life.id])
        await life.end(database)
    await life.end(database)
    assert query(db_url, "SELECT ended_how FROM idem.daemons") == [("clean",)]
    await database.close()
