"""The sweeper as a daemon: passes, heartbeats, outages, and its end."""

import asyncio
from collections import Counter
from typing import Any

import psycopg
from fix_settings import with_constants
from fix_waiting import running, stopping, until
from structlog.testing import capture_logs

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.settle import change_pages
from idem.sweeper.daemon import CHANGES, Sweeper, SweepResult

QUICK = with_constants(SweeperSettings(interval=0.1), retention_interval=0.2)


async def test_it_sweeps_prunes_gives_signs_of_life_and_ends_cleanly(rows: Any) -> None:
    await rows.claimed(30)
    await rows.queued(20, key="old", start=-1)
    await rows.completed(10, key="done")
    sweeper = rows.sweeper(QUICK)

    async def done() -> bool:
        return bool(
            await rows.statuses() == {"unknown": 30, "held": 20}
            and (await rows.states()).get("expired") == 10
            and await rows.value("SELECT count(*) FROM idem.daemons WHERE id = %(i)s", i=sweeper.life.id)
        )

    async with running(sweeper):
        await until(done)
        # What expires while it runs is found too.
        await rows.claimed(5, key="later")
        await until(lambda: rows.has({"unknown": 35, "held": 20}))
    (daemon,) = await rows.all("SELECT * FROM idem.daemons")
    assert (daemon["id"], daemon["kind"], daemon["ended_how"]) == (sweeper.life.id, "sweeper", "clean")


async def test_an_outage_is_said_once_and_waited_out(rows: Any, db_url: str, superuser_url: str) -> None:
    """IB-058, IB-066, IB-142: one line, a back-off instead of a hot loop, and no help needed afterwards."""
    (intent,) = await rows.claimed(left=60)
    name = await rows.value("SELECT current_database()")
    async with stopping(Database(db_url, name="sweeper-outage", size=4, timeouts=Timeouts(connect=2))) as own:
        await own.open()
        async with running(Sweeper(own, rows.known, QUICK)):
            await until(lambda: rows.all("SELECT FROM idem.daemons"))
            with capture_logs() as lines, psycopg.connect(superuser_url, autocommit=True) as admin:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    f" WHERE application_name = 'sweeper-outage' AND datname = '{name}'"
                )
                await until(lambda: any(line["event"] == "database_away" for line in lines))
                await asyncio.sleep(2)
                away = Counter(line["daemon"] for line in lines if line["event"] == "database_away")
                assert set(away.values()) == {1}
                assert not [line for line in lines if line["event"] == "broken"]
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await rows.execute("UPDATE idem.outbox SET claimed_until = statement_timestamp()")
            await until(lambda: rows.has({"unknown": 1}))
            assert (await rows.key(intent))["state"] == "unknown"


async def test_passes_never_overlap_and_a_long_one_is_followed_promptly(rows: Any, monkeypatch: Any) -> None:
    """IB-155."""
    at_once, most, passes = 0, 0, 0
    await rows.claimed(1)  # a pass that has nothing to do is not made
    sweeper = rows.sweeper(SweeperSettings(interval=0.5))

    async def long_page(*_: Any, place: change_pages.Place, **how: Any) -> list[Any]:
        nonlocal at_once, most, passes
        at_once += 1
        passes += 1
        most = max(most, at_once)
        await asyncio.sleep(0.6)
        at_once -= 1
        place.over = True
        return []

    monkeypatch.setitem(CHANGES, "leases", ("swept", long_page))

    async with running(sweeper):
        await until(lambda: passes >= 3)
    assert most == 1


async def test_a_stop_finishes_the_pass_that_runs(rows: Any, monkeypatch: Any) -> None:
    """SIGTERM in the middle of a batch: it is committed, not torn."""
    await rows.claimed(10)
    began, go_on = asyncio.Event(), asyncio.Event()
    write = change_pages.write

    async def waits(*arguments: Any) -> Any:
        began.set()
        await go_on.wait()
        return await write(*arguments)

    monkeypatch.setattr(change_pages, "write", waits)
    async with running(rows.sweeper(QUICK)) as stop:
        await began.wait()
        stop.set()
        await asyncio.sleep(0.2)
        go_on.set()
    assert await rows.statuses() == {"unknown": 10}


async def test_a_pass_ends_at_its_bound_and_says_that_there_is_more(rows: Any) -> None:
    await rows.claimed(50)
    sweeper = rows.sweeper(batch=10)
    done = await sweeper.run_once(within=0)
    assert (done.swept, done.more) == (10, True)
    done = await sweeper.run_once()
    assert (done.swept, done.more) == (40, False)
    assert await sweeper.run_once() == SweepResult()
