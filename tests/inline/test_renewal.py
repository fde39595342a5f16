"""Leases are renewed every third, no longer than `renew_for`, and a lost one stays lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fix_spine import Spine
from fix_waiting import until
from inline.buying import Shop, behind, buying, shop

from idem.errors import ConfigError
from idem.outbox.inline import InlineRuns
from idem.outcomes import Succeeded
from idem.testing.proxy import Direction, ProxyAction


async def sweeping(shop: Shop, until: Callable[[], Awaitable[object]]) -> int:
    """Sweep all the time until this is over; how many claims were ended."""
    ended, task = 0, asyncio.ensure_future(until())
    while not task.done():
        ended += (await shop.sweep()).swept
        await asyncio.sleep(0.05)
    await task
    return ended


@pytest.mark.timeout(120)
async def test_ib_011_a_call_of_three_leases_with_healthy_renewals_is_not_swept(spine: Spine) -> None:
    async with behind(spine, lambda *_: "pass", lease=3.0) as made:
        run = await made.run()
        assert await sweeping(made, lambda: asyncio.sleep(9)) == 0
        assert not run.lost and 0 < run.remaining <= 3
        assert await run.complete(await made.pay(run)) == "settled"


@pytest.mark.timeout(120)
async def test_ib_012_every_second_beat_dropped_loses_nothing(spine: Spine) -> None:
    beats: list[bool] = []

    def drop(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server" and b"claimed_until = greatest" in data:
            beats.append(len(beats) % 2 == 0)
            return "swallow" if beats[-1] else "pass"
        return "pass"

    async with behind(spine, drop, lease=6.0) as made:
        run = await made.run()
        assert await sweeping(made, lambda: asyncio.sleep(15)) == 0
        assert beats.count(True) >= 2 and beats.count(False) >= 2, beats
        assert not run.lost
        assert await run.complete(Succeeded("pay_1")) == "settled"


@pytest.mark.parametrize("every", [30.0, 10.1, 0.0, -1.0])
async def test_ib_012_a_renewal_that_leaves_no_room_is_refused(spine: Spine, every: float) -> None:
    with pytest.raises(ConfigError, match=r"operations\.buy\.keyed\.lease: .* third of the lease") as refused:
        InlineRuns(spine.database, buying(spine.bank.url), renew_every=every)
    assert "renew at least every 10s" in str(refused.value)
    InlineRuns(spine.database, buying(spine.bank.url), renew_every=10.0)


@pytest.mark.parametrize(("changes", "setting"), [({"lease": 0.0}, "lease"), ({"renew_for": -1.0}, "renew_for")])
async def test_a_lease_that_is_none_is_refused(spine: Spine, changes: dict[str, float], setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"operations\.buy\.keyed\.{setting}"):
        InlineRuns(spine.database, buying(spine.bank.url, **changes))


async def test_a_caller_that_hangs_holds_its_lease_no_longer_than_renew_for(spine: Spine) -> None:
    spine.catalogue = buying(spine.bank.url, lease=30.0, renew_for=100.0)
    made = shop(spine)
    async with made.runs:
        run = await made.run()

        async def lasts() -> float:
            return await spine.value("SELECT extract(epoch FROM claimed_until - claimed_at)::float8 FROM idem.outbox")

        assert await lasts() == 30
        assert await run.renew()
        assert 30 < await lasts() < 60
        # 90 seconds ago, and renewed ever since.
        await spine.execute("UPDATE idem.outbox SET claimed_at = claimed_at - interval '90 s'")
        assert await run.renew()
        before = await lasts()
        assert await run.renew() and await lasts() == before
        await spine.advance(120)
        assert (await made.sweep()).to_unknown == 1
        assert not await run.renew() and run.lost


async def test_a_lease_that_begins_longer_than_renew_for_is_not_cut_short(spine: Spine) -> None:
    spine.catalogue = buying(spine.bank.url, lease=30.0, renew_for=0.0)
    made = shop(spine)
    async with made.runs:
        run = await made.run()
        assert await run.renew() and 29 < run.remaining <= 30


async def test_a_lost_lease_is_seen_on_the_run_and_stays_lost(shop: Shop) -> None:
    run = await shop.run()
    await shop.lose(run)
    assert not run.lost, "only the database knows"
    assert not await run.renew()
    assert run.lost and run.remaining == 0
    await shop.spine.execute("UPDATE idem.outbox SET claimed_until = statement_timestamp() + interval '1 h'")
    assert not await run.renew() and run.lost


async def test_a_run_that_hears_nothing_from_its_database_gives_itself_up(spine: Spine) -> None:
    """By its own boot-time clock, not later than the database does."""
    down = False

    async with behind(spine, lambda *_: "swallow" if down else "pass", lease=2.0) as made:
        run = await made.run()
        down = True
        left = "SELECT extract(epoch FROM claimed_until - clock_timestamp())::float8 FROM idem.outbox"
        before = await spine.value(left)
        assert run.remaining <= before + 0.001
        await until(lambda: run.lost, seconds=20, every=0.1)
        assert run.remaining == 0
        down = False
        assert not await run.renew()
        # The run gives itself up a little before the database does.
        await until(lambda: made.is_swept(), seconds=20)
        assert await run.complete(Succeeded("pay_1")) == "late_proof"
        assert (await spine.key(run.intent_id))["state"] == "completed"
