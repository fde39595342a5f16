"""A worker is killed at every point of a local step's turn, at any message of a flow, and at any moment: what its
steps write, and what they call, is there once."""

import asyncio
import os
import random
import signal
from typing import Any
from uuid import UUID

import layers
import pytest
from fix_forking import ended, started, two_killed_in_turn
from fix_line import target, through
from fix_waiting import until
from flows import killed_local

from idem.testing.proxy import Direction, Proxy, ProxyAction

POINTS = {"taken": 0, "written": 0, "unended": 0, "ended": 0, "committed": 1}
"""Points at which the process dies, and how many rows of the step are there at that moment."""
DONE = "SELECT FROM idem.intents WHERE id = %(i)s AND state = 'completed'"
RUNS = 60 if layers.thorough() else 8
MESSAGES = 170
"""Messages to the database in the life of a worker that runs one flow, its start included."""


def define(shop: Any, *, asynchronous: bool = False) -> None:
    shop.define(*killed_local.steps(asynchronous=asynchronous))


def start(shop: Any, point: str = "", *, asynchronous: bool = False, url: str = "") -> Any:
    return started(killed_local.run, url or shop.spine.url, shop.spine.bank.url, point, asynchronous)


async def completed(shop: Any, intent: UUID) -> None:
    """Every step was done once, in the order of the plan."""
    assert [name for name, _ in await shop.ends(intent)] == ["ride", "charge", "pay", "receipt"]
    await shop.spine.expect(intent, state="completed", key="completed", answer=201, letters=[])
    events = await shop.spine.events(intent)
    assert events == ["step", "step", "step", "step", "completed"]


@pytest.mark.quick
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_dies_in_a_turn_did_all_or_nothing(shop: Any, point: str, asynchronous: bool) -> None:
    define(shop, asynchronous=asynchronous)
    intent = shop.accepted()
    await ended(start(shop, point, asynchronous=asynchronous), -signal.SIGKILL)
    assert len(await shop.rows()) == POINTS[point]
    assert len(await shop.ends(intent)) == POINTS[point]
    process = start(shop, asynchronous=asynchronous)
    await until(lambda: shop.spine.all("SELECT FROM idem.intents WHERE state = 'completed'"))
    process.terminate()
    await ended(process)
    assert await shop.rows() == [("ride", ""), ("pay", "ride:succeeded charge:succeeded")]
    assert shop.effects() == ["charge", "receipt"]
    await completed(shop, intent)


class Killer:
    """Kills a process before or after a message to the database has passed."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at = at
        self.after = after
        self.seen = 0
        self.pid = 0

    def _kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = 0

    def before(self, _number: int, direction: Direction, _data: bytes) -> ProxyAction:
        if direction == "to_server":
            self.seen += 1
            if self.seen == self.at and not self.after:
                self._kill()
                return "cut"
        return "pass"

    def behind(self, _number: int, direction: Direction, _data: bytes) -> ProxyAction:
        if direction == "to_server" and self.seen >= self.at and self.after:
            self._kill()
        return "pass"


@pytest.mark.fuzz
@pytest.mark.quick
@pytest.mark.timeout(120 + 12 * RUNS)
async def test_a_process_that_dies_at_any_message_of_a_flow_did_each_step_once(shop: Any) -> None:
    """SIGKILL before or after the n-th message to the database; then others go on, and the clock with them."""
    define(shop)
    dice = random.Random(int(os.environ.get("IDEM_SEED", "7")))
    killed = 0
    for run in range(RUNS):
        killer = Killer(dice.randrange(20, MESSAGES), after=bool(run % 2))
        async with Proxy(target(shop.spine.url), killer.before, killer.behind) as proxy:
            intent = shop.accepted(f"k{run}")
            process = start(shop, url=through(shop.spine.url, proxy))
            killer.pid = process.pid
            await until(lambda p=process, i=intent: not p.is_alive() or shop.spine.all(DONE, i=i))
            killed += not process.is_alive()
            killer.pid = 0
            process.kill()
            await asyncio.to_thread(process.join, 10)
        for _ in range(12):
            if await shop.spine.all(DONE, i=intent):
                break
            await shop.spine.sweep(after=200)
            await shop.spine.reconcile(hasten=True)
            await shop.work()
        await completed(shop, intent)
        counted = await shop.spine.all("SELECT step, count(*) AS n FROM public.rows GROUP BY step ORDER BY step")
        assert counted == [{"step": "pay", "n": run + 1}, {"step": "ride", "n": run + 1}], (killer.at, killer.after)
        assert sorted(shop.effects()) == ["charge"] * (run + 1) + ["receipt"] * (run + 1), (killer.at, killer.after)
    assert killed > RUNS / 3


async def test_two_processes_killed_again_and_again_run_every_step_once(shop: Any) -> None:
    define(shop)
    dice = random.Random(int(os.environ.get("IDEM_SEED", "7")))
    for number in range(40):
        shop.accepted(f"k{number}")
    running = await two_killed_in_turn(lambda kind: start(shop, asynchronous=kind), dice, (0.2, 0.8))

    async def over() -> bool:
        # What died during a call is swept and asked about.
        await shop.spine.sweep(after=40)
        await shop.spine.reconcile(hasten=True)
        return bool(await shop.spine.all("SELECT FROM idem.intents WHERE state = 'completed' HAVING count(*) = 40"))

    await until(over, seconds=120)
    for process in running:
        process.terminate()
        await ended(process)
    counted = await shop.spine.all("SELECT step, count(*) AS n FROM public.rows GROUP BY step ORDER BY step")
    assert counted == [{"step": "pay", "n": 40}, {"step": "ride", "n": 40}]
    assert sorted(shop.effects()) == ["charge"] * 40 + ["receipt"] * 40
    assert await shop.spine.all("SELECT FROM idem.dead_letters WHERE resolved_at IS NULL") == []
