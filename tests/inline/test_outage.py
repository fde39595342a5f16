"""The database goes away at either end of a run: what was written is found again, and what was not is never guessed."""

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from fix_spine import Spine
from fix_waiting import until
from inline.buying import behind

from idem.errors import StoreUnavailable
from idem.outcomes import Succeeded
from idem.testing.proxy import Direction, ProxyAction


@dataclass
class Line:
    """Cuts the answer to the statement that has this in it, so many times; `down`: nothing passes."""

    lose: bytes = b""
    times: int = 0
    down: bool = False
    asked: set[int] = field(default_factory=set)
    lost: int = 0

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if self.down:
            return "cut"
        if direction == "to_server" and self.lose and self.lose in data:
            self.asked.add(number)
        elif direction == "to_client" and number in self.asked and self.lost < self.times:
            self.asked.discard(number)
            self.lost += 1
            return "cut"
        return "pass"


pytestmark = pytest.mark.timeout(60)


async def test_hazard_21_the_lost_answer_to_a_beginning_is_found_by_its_token(spine: Spine) -> None:
    line = Line(b"idem.begin_inline", times=1)
    async with behind(spine, line) as made:
        run = await made.run()
        assert line.lost == 1 and run.attempt == 1
        assert 0 < run.remaining <= 30
        assert await run.complete(Succeeded("pay_1")) == "settled"
    assert [kind for _, kind, _ in await spine.evidence(run.intent_id)] == ["accepted", "report"]


async def rests(spine: Spine, intent: UUID) -> bool:
    return await spine.status(intent) == "held"


async def test_hazard_21_a_beginning_of_which_nobody_hears_is_given_back(spine: Spine) -> None:
    """It commits, and its caller is told that no call was begun: so it rests, and does not become unknown."""
    line = Line(b"idem.begin_inline", times=1)
    async with behind(spine, line, begin_within=1.5) as made:
        first = asyncio.create_task(made.begin())
        await until(lambda: line.lost)
        line.down = True
        with pytest.raises(StoreUnavailable, match="no call was started"):
            await first
        line.down = False
        (row,) = await spine.all("SELECT intent_id FROM idem.outbox")
        await until(lambda: rests(spine, row["intent_id"]), seconds=20)
        assert await spine.letters(row["intent_id"]) == []
        run = await made.run()
        assert (run.intent_id, run.attempt) == (row["intent_id"], 2)
        await run.not_executed("end of the test")


async def test_hazard_21_the_lost_answer_to_complete_is_already_written(spine: Spine) -> None:
    # A change as a parameter, and not the statement: that is prepared before it is run.
    line = Line(b'"to_state": "completed"', times=1)
    async with behind(spine, line) as made:
        run = await made.run()
        assert await run.complete(await made.pay(run)) == "already"
        assert line.lost == 1
    assert await made.ends(run.intent_id) == [("inline", None)]
    assert (await spine.key(run.intent_id))["state"] == "completed"


async def test_a_report_is_tried_again_while_the_database_is_away(spine: Spine) -> None:
    line = Line()
    async with behind(spine, line) as made:
        run = await made.run()
        line.down = True
        report = asyncio.create_task(run.complete(await made.pay(run)))
        await asyncio.sleep(1)
        assert not report.done()
        line.down = False
        assert await report == "settled"


async def test_a_report_that_cannot_be_written_is_heard_of_and_left_to_lease_and_sweeper(spine: Spine) -> None:
    line = Line()
    async with behind(spine, line, report_within=1.0) as made:
        run = await made.run()
        outcome = await made.pay(run)
        line.down = True
        with pytest.raises(StoreUnavailable, match="Do not make the call again"):
            async with run:
                await run.complete(outcome)
        assert await spine.status(run.intent_id) == "claimed"
        assert await made.settle(run.intent_id, "completed") == "completed"
        assert spine.effects() == 1
        line.down = False
        # Whoever kept what it knew may still say it: it agrees with what was found.
        assert await run.complete(outcome) == "late_proof"
        assert await spine.letters(run.intent_id) == []


async def test_a_beginning_without_a_database_is_refused_in_bounded_time(spine: Spine) -> None:
    line = Line(down=True)
    async with behind(spine, line, begin_within=1.0) as made:
        with pytest.raises(StoreUnavailable, match="no call was started"):
            await asyncio.wait_for(made.begin(), 20)
    assert await spine.all("SELECT FROM idem.intents") == []
