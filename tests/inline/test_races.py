"""Races of callers, sweepers and each other: one run a key, one end a claim."""

import asyncio
import random
from collections import Counter

import pytest
from fix_database import connected
from inline import buying
from inline.buying import Shop

from idem.decisions import InProgress
from idem.outbox.domain.outcomes import Succeeded
from idem.outbox.inline import InlineRun
from idem.outbox.settle.expired_leases import sweep_expired

ROUNDS = 200


@pytest.mark.timeout(180)
async def test_two_callers_with_one_key_at_a_barrier_one_runs(shop: Shop, db_url: str) -> None:
    """Of a new key, and of one at rest: the key rests after every round, so each round but the first takes it up."""
    async with connected(db_url, size=2) as other_database, buying.shop(shop.spine, other_database).runs as other_runs:
        other = buying.Shop(shop.spine, other_runs)
        for number in range(ROUNDS):
            key = "at rest" if number % 2 else f"new {number}"
            found = await asyncio.gather(shop.begin(key), other.begin(key))
            runs = [each for each in found if isinstance(each, InlineRun)]
            assert len(runs) == 1, found
            assert any(isinstance(each, InProgress) for each in found)
            await runs[0].not_executed("the next round")
        assert (await shop.spine.one("SELECT max(attempt) AS a FROM idem.outbox"))["a"] == ROUNDS // 2


@pytest.mark.timeout(180)
async def test_ib_014_complete_against_the_sweep_ends_each_claim_once(shop: Shop) -> None:
    """Only the sweeper looks at the clock: a report that comes before it is in time, and one after it is late."""
    fates: Counter[str] = Counter()
    chance = random.Random(14)

    async def sweep() -> int:
        # A report renders its answer first, in a thread: the sweep begins at some moment of that, or after it.
        await asyncio.sleep(chance.random() * 0.006)
        return len(await shop.spine.run(sweep_expired, shop.known, batch=5))

    for number in range(ROUNDS):
        run = await shop.run(f"k{number}")
        await shop.lose(run)
        fate, swept = await asyncio.gather(run.complete(Succeeded("pay_1")), sweep())
        fates[fate] += 1
        assert (fate, swept) in {("settled", 0), ("late_proof", 1)}
        assert len(await shop.ends(run.intent_id)) == 1
        assert (await shop.spine.key(run.intent_id))["state"] == "completed"
    assert fates["settled"] > 0 and fates["late_proof"] > 0, fates
    assert await shop.spine.all("SELECT FROM idem.dead_letters") == []


async def test_a_renewal_against_the_sweep_never_takes_a_lost_lease_back(shop: Shop) -> None:
    for number in range(40):
        run = await shop.run(f"k{number}")
        run.stop()
        await shop.lose(run)
        renewed, swept = await asyncio.gather(run.renew(), shop.sweep())
        assert not renewed and swept.to_unknown == 1
        assert run.lost and run.remaining == 0


async def test_hazard_22_a_row_that_somebody_holds_for_long_holds_up_no_beginning(shop: Shop) -> None:
    await (await shop.run()).not_executed("nothing left")
    async with shop.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.outbox FOR UPDATE")
        assert isinstance(await asyncio.wait_for(shop.begin(), 5), InProgress)


async def test_hazard_23_a_beginning_does_not_wait_for_another_that_has_not_committed(shop: Shop) -> None:
    async with shop.spine.database.connection() as connection, connection.transaction(force_rollback=True):
        await connection.execute("SELECT idem.reserve('t', 'buy.keyed', 'k1', 'v1:1', '72 h', '15 min', false)")
        decided = await asyncio.wait_for(shop.begin(), 5)
    assert isinstance(decided, InProgress) and decided.intent_id is None
