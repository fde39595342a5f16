"""When a row is claimed, and what a notification, a wrong clock and a dead letter have to do with it."""

import asyncio
import datetime as dt
import time

import psycopg
import pytest
from fix_spine import Spine
from fix_sql import engine_of

from idem.decisions import Accepted, Replay
from idem.outbox.database.notify import Nudge
from idem.outbox.settle.expired_leases import sweep_expired

TEN_MINUTES = 600


async def test_a_row_is_called_when_it_is_due_and_once(spine: Spine) -> None:
    """IB-025."""
    intent = spine.accepted()
    assert (await spine.work(after=-10 * spine.settings.lease)).claimed == 0
    assert (await spine.work(after=9 * spine.settings.lease)).claimed == 0
    assert (await spine.work(after=2 * spine.settings.lease)).claimed == 1
    assert (await spine.work()).claimed == 0
    assert await spine.row_if_any(intent) is None
    assert len(spine.bank.log.sends()) == 1


async def test_a_hint_before_the_commit_finds_nothing_and_breaks_nothing(spine: Spine) -> None:
    """IB-031: a worker that looks while the accepting transaction is open finds nothing, and the row afterwards."""
    nudge = Nudge(spine.url)
    engine = engine_of(spine.url)
    with engine.connect() as connection:
        kept = connection.begin()
        spine.acceptor.accept(connection, "t", "pay.keyed", "k1", {"amount": 100})
        nudge.wake()
        assert (await spine.work()).claimed == 0
        kept.rollback()
        assert (await spine.work()).claimed == 0
        with connection.begin():
            spine.acceptor.accept(connection, "t", "pay.keyed", "k1", {"amount": 100})
            nudge.wake()
            assert (await spine.work()).claimed == 0
    assert (await spine.work()).claimed == 1
    nudge.close()
    assert len(spine.bank.log.sends()) == 1


@pytest.mark.parametrize("size", [20_000, 900_000])
def test_a_notification_stays_small_however_large_the_request(spine: Spine, size: int) -> None:
    """IB-060: a notification holds 8,000 bytes at the most."""
    with psycopg.connect(spine.url, autocommit=True) as listening:
        listening.execute("LISTEN idem_outbox")
        engine = engine_of(spine.url)
        nudge = Nudge(spine.url)
        with engine.begin() as connection:
            params = {"amount": 100, "note": "x" * size}
            decision = spine.acceptor.accept(connection, "t", "pay.keyed", "k1", params)
        nudge.wake()
        heard = list(listening.notifies(timeout=10, stop_after=1))
        nudge.close()
    assert isinstance(decision, Accepted)
    assert [len(hint.payload) < 200 for hint in heard] == [True]


async def test_a_process_whose_clock_is_wrong_takes_no_lease_and_calls_nothing_early(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IB-035, IB-036: leases and due times are the database's."""
    spine.accepted("leased")
    began, release = asyncio.Event(), asyncio.Event()

    async def hold(_: object) -> None:
        began.set()
        await release.wait()

    spine.bank.when("received", None, hold)
    first = asyncio.create_task(spine.work())
    await asyncio.wait_for(began.wait(), 10)
    spine.accepted("later", 101)
    async with spine.database.connection() as connection:
        await connection.execute(
            "UPDATE idem.outbox SET available_at = statement_timestamp() + interval '60 s' WHERE status = 'pending'"
        )
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + TEN_MINUTES)
        assert (await spine.work()).claimed == 0
        assert await sweep_expired(connection, spine.catalogue, batch=100) == []
    release.set()
    assert (await first).fates == {"settled": 1}
    assert len(spine.bank.log.sends()) == 1


async def test_a_dead_letter_keeps_no_other_request_for_the_same_thing_away(spine: Spine) -> None:
    """IB-131: no lock outlives the row that it is about."""
    dead = await spine.sent("first", -5)
    assert await spine.letters(dead) == ["rejected"]
    assert isinstance(spine.accept("second", 5), Accepted)
    await spine.work()
    assert isinstance(spine.accept("second", 5), Replay)


async def test_no_request_is_given_up_at_the_hour_that_comes_twice(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IB-153, IB-154: a database and a process whose zone has summer time; nothing is due an hour early or late."""
    await spine.sent(faults=["act_then_drop"])
    waits = []
    for zone in ("US/Pacific", "Europe/Brussels", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        async with spine.database.connection() as connection:
            await connection.execute("SELECT set_config('TimeZone', %s, false)", (zone,))
            cursor = await connection.execute("SELECT available_at FROM idem.outbox")
            (found,) = await cursor.fetchone() or (None,)
            waits.append(found.astimezone(dt.UTC) if found else None)
            await connection.execute("RESET TimeZone")
    monkeypatch.undo()
    time.tzset()
    assert waits[0] is not None
    assert len(set(waits)) == 1


async def test_an_unknown_row_holds_up_no_other(spine: Spine) -> None:
    """IB-043, IB-047: no row waits for an earlier one, and what is unknown is not sent again because of a newer one."""
    old = await spine.sent("old", operation="pay.keyless", faults=["drop_before_acting"])
    await spine.sent("new", operation="pay.keyless")
    assert isinstance(spine.accept("new", operation="pay.keyless"), Replay)
    rows = await spine.all("SELECT status, ordering_key FROM idem.outbox")
    assert [(row["status"], row["ordering_key"]) for row in rows] == [("unknown", None)]
    await spine.work(times=3)
    assert len(spine.bank.log.sends()) == 2
    assert (await spine.key(old))["state"] == "unknown"
