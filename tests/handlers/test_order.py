"""An intent's events reach a handler in their order, one at a time, and none is missed, whoever commits when."""

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest
from fix_waiting import running, until
from handlers.conftest import WRITE, House, words
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.orm import Session

from idem import Settled
from idem.outbox.handlers.runner import HandlerRunner


def write(db: Session, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("write", settled))


async def test_ib_046_several_runners_tell_each_intent_in_order_one_at_a_time(house: House) -> None:
    inside: set[Any] = set()
    together: list[Any] = []
    lock = threading.Lock()

    def slow(db: Session, settled: Settled[Any]) -> None:
        with lock:
            if settled.intent in inside:
                together.append(settled.intent)
            inside.add(settled.intent)
        db.execute(text(WRITE), words("slow", settled))
        time.sleep(0.002)
        with lock:
            inside.discard(settled.intent)

    known = house.handlers(slow)
    runners = [HandlerRunner(house.url, known, threads=3, poll=0.01) for _ in range(3)]
    await runners[0].run_once()
    async with running(*runners):
        intents = [house.intent("rested", "corrected", "completed", "later_fact") for _ in range(25)]
        await until(lambda: house.marks() == 100)
    assert together == []
    assert len(house.orders()) == 100
    for intent in intents:
        assert [number for _, number in house.orders(intent)] == [1, 2, 3, 4]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_ib_044_an_event_that_is_committed_late_is_told(house: House, isolation: str) -> None:
    async with house.runner(house.handlers(write)) as runner:
        await runner.run_once()
        with psycopg.connect(house.url, row_factory=dict_row) as late:
            late.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            first = house.intent("completed", connection=late)
            second = house.intent("completed")
            assert await runner.run_once() == 1
            assert house.orders() == [("write", 1)]
            late.commit()
        assert await runner.run_once() == 1
        assert house.orders(first) == house.orders(second) == [("write", 1)]
    assert house.waiting() == []


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_transaction_that_cannot_see_a_new_handler_is_heard_by_it(house: House, isolation: str) -> None:
    """Its snapshot is older than the registration, its event is not. Told in order with what comes after it."""
    with psycopg.connect(house.url, row_factory=dict_row) as old:
        old.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        assert old.execute("SELECT count(*) AS n FROM idem.event_handlers").fetchone() == {"n": 0}
        async with house.runner(house.handlers(write)) as runner:
            await runner.run_once()
            intent = house.intent("rested", connection=old)
            old.commit()
            house.event(intent, "corrected")
            assert await runner.run_once() == 2
            assert [number for _, number in house.orders(intent)] == [1, 2]
            assert await runner.run_once() == 0
    assert house.waiting() == []


async def test_what_no_handler_wants_is_taken_away(house: House) -> None:
    with psycopg.connect(house.url, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        house.intent("completed", connection=connection)
    assert len(house.waiting()) == 1
    async with house.runner({}) as runner:
        await runner.run_once()
    assert house.waiting() == []


async def test_a_handler_that_is_new_begins_with_what_settles_from_then_on(house: House) -> None:
    before = house.intent("completed")
    async with house.runner(house.handlers(write)) as runner:
        assert await runner.run_once() == 0
        house.event(before, "later_fact")
        after = house.intent("completed")
        assert await runner.run_once() == 2
    assert house.orders(before) == [("write", 2)]
    assert house.orders(after) == [("write", 1)]


async def test_a_handler_that_begins_with_the_first_hears_all_in_order(house: House) -> None:
    with house.connection() as connection:
        old = [house.intent("rested", "completed", connection=connection) for _ in range(260)]
        for _ in range(120):
            house.intent("completed", connection=connection, operation="ship")
    async with house.runner(house.handlers(write, begin="first"), threads=4) as runner, running(runner):
        # While the walk is on, and before it reaches them, old intents have something new.
        await until(lambda: house.run("SELECT 1 FROM idem.event_handlers"), every=0.01)
        for intent in (old[-1], old[-2], old[0]):
            house.event(intent, "later_fact")
        new = house.intent("completed")
        await until(lambda: house.marks() == 524)
    assert len(house.orders()) == 524
    assert [n for _, n in house.orders(old[-1])] == [n for _, n in house.orders(old[0])] == [1, 2, 3]
    assert house.orders(new) == [("write", 1)]
    assert house.run("SELECT backfilled_intent FROM idem.event_handlers") == [{"backfilled_intent": None}]


async def test_the_walk_waits_for_who_may_not_have_seen_the_handler(house: House) -> None:
    """Hazard: its id is lower than that of others, and it commits when the walk would have passed."""
    with psycopg.connect(house.url, row_factory=dict_row) as late:
        first = house.intent("completed", connection=late)
        second = house.intent("completed")
        async with house.runner(house.handlers(write, begin="first")) as runner:
            assert await runner.run_once() == 0
            assert house.orders() == []
            late.commit()
            told = 0
            for _ in range(200):
                # The ids of transactions are the server's: one in another database is waited for too.
                told += await runner.run_once()
                if told == 2:
                    break
                await asyncio.sleep(0.05)
    assert house.orders(first) == house.orders(second) == [("write", 1)]


async def test_a_handler_that_is_gone_keeps_its_work_until_it_is_forgotten(house: House) -> None:
    known = house.handlers(write)
    async with house.runner(known) as runner:
        await runner.run_once()
    house.intent("completed")
    house.intent("completed", "later_fact")
    assert len(house.waiting()) == 3
    (name,) = known
    assert house.run("SELECT idem.forget_handler(%(n)s) AS n", n=name) == [{"n": 3}]
    assert house.waiting() == house.run("SELECT 1 FROM idem.event_handlers") == []


async def test_an_event_whose_retention_has_passed_is_dropped(house: House) -> None:
    async with house.runner(house.handlers(write)) as runner:
        await runner.run_once()
        intent = house.intent("completed", "later_fact")
        house.run("SET session_replication_role = replica; DELETE FROM idem.events WHERE number = 1")
        assert await runner.run_once() == 1
    assert house.orders(intent) == [("write", 2)]
    assert house.waiting() == []
