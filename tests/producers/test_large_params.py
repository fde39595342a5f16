"""Params of SQL that take long to check: one row at a time, and no row is blamed for another's time."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fix_spine import Spine
from producers.application import Application, usual

from idem.outbox.daemon.pass_times import PassTimes
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.worker import freezing
from idem.outbox.worker.freezing import Freezer
from idem.outbox.worker.idle_poll import IdlePoll

MANY = {"amount": 1, "items": [10] * 2000}
"""More characters than `freezing.LIGHT`."""


class Checks:
    """A check of params that says how many of it run at once, and lasts until it is let go."""

    def __init__(self) -> None:
        self.running = self.most = self.begun = 0
        self.last_until: Callable[[], bool] = lambda: True
        self._lock = threading.Lock()

    def __call__(self, params: Any) -> None:
        with self._lock:
            self.running += 1
            self.begun += 1
            self.most = max(self.most, self.running)
        try:
            time.sleep(0.02)
            ends = time.monotonic() + 60
            while not self.last_until() and time.monotonic() < ends:
                time.sleep(0.01)
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def checks(spine: Spine) -> Checks:
    made = Checks()
    spine.know("pay.keyed", "keyed", validate=made, request=usual)
    return made


async def statuses(spine: Spine, intents: list[Any]) -> set[Any]:
    return {await spine.status(intent) for intent in intents}


async def drained(freezer: Freezer, spine: Spine, intents: list[Any]) -> set[Any]:
    """What became of them when none waits any more."""
    ends = time.monotonic() + 60
    while "unfrozen" in (found := await statuses(spine, intents)) and time.monotonic() < ends:
        await freezer.once()
    return found


async def test_large_params_are_rendered_in_turn(spine: Spine, application: Application, checks: Checks) -> None:
    intents = [application.accepted(f"k{n}", MANY) for n in range(8)]
    assert await drained(Freezer(spine.database, spine.catalogue), spine, intents) == {"pending"}
    assert (checks.most, checks.begun) == (1, 8)


async def test_small_params_wait_for_no_other(spine: Spine, application: Application, checks: Checks) -> None:
    checks.last_until = lambda: checks.most >= 3
    intents = [application.accepted(f"k{n}") for n in range(3)]
    assert await drained(Freezer(spine.database, spine.catalogue), spine, intents) == {"pending"}


async def test_the_result_of_a_check_outlasts_the_lock(spine: Spine, application: Application, checks: Checks) -> None:
    """On a busy machine good params take longer than a row may be locked: they wait, and are checked once."""
    free = threading.Event()
    checks.last_until = free.is_set
    freezer = Freezer(spine.database, spine.catalogue, time_limit=0.2)
    intents = [application.accepted(f"k{n}", MANY) for n in range(3)]
    small = application.accepted("other", operation="pay.keyless")
    try:
        for _ in range(3):
            await freezer.once()
        assert await statuses(spine, intents) == {"unfrozen"}
        assert checks.begun == 1, "no other large one begins, and this one is not begun again"
        assert await spine.status(small) == "pending"
    finally:
        free.set()
    assert await drained(freezer, spine, intents) == {"pending"}
    assert (checks.most, checks.begun) == (1, 3)


async def test_a_result_that_is_late_is_taken_at_once(spine: Spine, application: Application, checks: Checks) -> None:
    """Not at the next pass, which is an hour away here."""
    free, stop = threading.Event(), asyncio.Event()
    checks.last_until = free.is_set
    freezer = Freezer(spine.database, spine.catalogue, time_limit=0.2)
    intents = [application.accepted(f"k{n}", MANY) for n in range(3)]
    idle = IdlePoll(spine.database, 3600)
    running = asyncio.create_task(
        freezer.run(stop, asyncio.Event(), PassTimes("worker").expect("freezing", 3600), lambda: None, idle)
    )
    try:
        await asyncio.sleep(1)
        assert await statuses(spine, intents) == {"unfrozen"}
        free.set()
        async with asyncio.timeout(60):
            while await statuses(spine, intents) != {"pending"}:
                await asyncio.sleep(0.1)
    finally:
        free.set()
        stop.set()
        await running


async def test_small_params_do_not_wait_for_a_large_one(spine: Spine, application: Application, checks: Checks) -> None:
    """Many transactions of small ones pass while the check of one large row goes on."""
    free = threading.Event()
    spine.know("pay.keyless", "keyless", request=usual)
    checks.last_until = free.is_set
    freezer = Freezer(spine.database, spine.catalogue)
    large = application.accepted("large", MANY)
    small = [application.accepted(f"k{n}", operation="pay.keyless") for n in range(2 * freezing.BATCH)]
    try:
        assert await freezer.once() == len(small)
        assert await spine.status(large) == "unfrozen"
    finally:
        free.set()
    assert await drained(freezer, spine, [large]) == {"pending"}


async def test_a_slow_check_takes_no_time_from_the_code(spine: Spine, application: Application, checks: Checks) -> None:
    """The wait for a small row ends while its code has just begun: the row waits, and its result counts."""
    free, begun = threading.Event(), time.monotonic()

    def slow(params: Any) -> ProviderRequest:
        free.wait(60)
        return usual(params)

    spine.know("pay.keyed", "keyed", validate=checks, request=slow)
    freezer = Freezer(spine.database, spine.catalogue, time_limit=4)
    intent = application.accepted("k1")
    checks.last_until = lambda: time.monotonic() - begun > 2.5
    try:
        begun = time.monotonic()
        await freezer.once()
        assert await spine.status(intent) == "unfrozen"
    finally:
        free.set()
    assert await drained(freezer, spine, [intent]) == {"pending"}
    assert await spine.letters(intent) == []


async def test_a_check_without_end(spine: Spine, application: Application, checks: Checks, monkeypatch: Any) -> None:
    free = threading.Event()
    checks.last_until = free.is_set
    monkeypatch.setattr(freezing, "CHECK_LIMIT", 0.5)
    freezer = Freezer(spine.database, spine.catalogue, time_limit=0.2)
    intent = application.accepted("k1", MANY)
    try:
        assert await drained(freezer, spine, [intent]) == {"held"}
        assert await spine.letters(intent) == ["unrenderable"]
    finally:
        free.set()


async def test_params_come_from_the_database_as_text(spine: Spine, application: Application, checks: Checks) -> None:
    """The loop would parse the megabytes of a whole batch in one step."""
    application.accepted("k1", MANY)
    from idem.outbox.worker.unfrozen import pick

    freezer = Freezer(spine.database, spine.catalogue)
    async with spine.database.connection() as connection, connection.transaction():
        (one,), _ = await pick(connection, spine.catalogue, freezer._sources, after="", limit=5)
    assert isinstance(one.written, str)
