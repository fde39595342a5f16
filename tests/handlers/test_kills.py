"""A process is killed at every point of a turn, and at any moment: each event is counted exactly once (IB-021)."""

import os
import random
import signal
from typing import Any

import kill_handler
import pytest
from fix_forking import ended, started, two_killed_in_turn
from fix_waiting import until
from handlers.conftest import House

POINTS = {"taken": 0, "written": 0, "unmarked": 0, "marked": 0, "committed": 1}
"""Points at which the process dies, and how many of one event are counted at that moment."""


def start(house: House, point: str = "", *, asynchronous: bool = False) -> Any:
    return started(kill_handler.run, house.url, point, asynchronous)


async def registered(house: House) -> None:
    """The handler exists, as after its first deployment."""
    async with house.runner(house.handlers(kill_handler.count, name="count")) as runner:
        assert await runner.run_once() == 0
    assert house.run("SELECT 1 FROM idem.event_handlers")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_dies_in_a_turn_did_all_or_nothing(house: House, point: str, asynchronous: bool) -> None:
    await registered(house)
    intent = house.intent("completed", "later_fact")
    process = start(house, point, asynchronous=asynchronous)
    await ended(process, -signal.SIGKILL)
    assert house.orders(intent) == [("count", 1)] * POINTS[point]
    assert house.marks() == POINTS[point]
    process = start(house, asynchronous=asynchronous)
    await until(lambda: house.marks() == 2)
    process.terminate()
    await ended(process)
    assert house.orders(intent) == [("count", 1), ("count", 2)]
    assert house.waiting() == [] and house.letters() == []


@pytest.mark.process
async def test_two_processes_killed_again_and_again_count_every_event_once(house: House) -> None:
    await registered(house)
    dice = random.Random(int(os.environ.get("IDEM_SEED", "7")))
    with house.connection() as connection:
        for _ in range(150):
            house.intent("rested", "completed", connection=connection)
    running = await two_killed_in_turn(lambda kind: start(house, asynchronous=kind), dice, (0.05, 0.5))
    await until(lambda: house.marks() == 300)
    for process in running:
        process.terminate()
        await ended(process)
    counted = house.run("SELECT count(*) AS n, count(DISTINCT (intent, number)) AS events FROM public.orders")
    assert counted == [{"n": 300, "events": 300}]
    wrong = house.run("""
        SELECT a.intent FROM public.orders a JOIN public.orders b USING (intent)
         WHERE a.number = 1 AND b.number = 2 AND a.xmin::text::bigint > b.xmin::text::bigint
    """)
    assert wrong == []
    assert house.waiting() == [] and house.letters() == []


@pytest.mark.quick
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_sigterm_lets_the_running_turn_come_to_its_end(house: House, asynchronous: bool) -> None:
    await registered(house)
    intent = house.intent("completed", "later_fact")
    process = start(house, "slow", asynchronous=asynchronous)
    held = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'idem-handlers' AND backend_xid IS NOT NULL" \
           " AND datname = current_database()"  # fmt: skip
    await until(lambda: house.run(held))
    process.terminate()
    await ended(process)
    assert house.orders(intent) == [("count", 1)] and house.marks() == 1
