"""Calls at a time of the whole fleet: first sends, replays and look-ups together; exact where the lane asks for it."""

import asyncio

from fix_spine import Spine
from protection.limited import backlog, claim, limited, take

from idem.outbox.domain.limits import Limits


async def test_who_asks_has_its_share_and_no_more(spine: Spine) -> None:
    await backlog(spine, unknown=8, pending=0)
    lane = limited(spine, Limits(concurrency=10, lookup_share=0.3))
    assert len(await take(spine, lane)) == 3
    assert await take(spine, lane) == []


async def test_first_sends_leave_free_what_is_due_to_be_asked_about(spine: Spine) -> None:
    """Else sends that never stop would keep every question waiting until its replay window has passed."""
    await backlog(spine, unknown=2, pending=20)
    lane = limited(spine, Limits(concurrency=10, lookup_share=0.5))
    assert len(await claim(spine, lane)) == 8
    assert len(await take(spine, lane)) == 2
    assert await claim(spine, lane) == []


async def test_where_nothing_is_to_be_asked_first_sends_have_it_all(spine: Spine) -> None:
    await backlog(spine, unknown=0, pending=20)
    assert len(await claim(spine, limited(spine, Limits(concurrency=10, lookup_share=0.5)))) == 10


async def test_paused_look_ups_keep_nothing_free(spine: Spine) -> None:
    await backlog(spine, unknown=5, pending=20)
    await spine.all("INSERT INTO idem.lanes (provider, account, lookups_paused) VALUES ('keyed', '', true) RETURNING 1")
    assert len(await claim(spine, limited(spine, Limits(concurrency=10, lookup_share=0.5)))) == 10


async def test_a_fleet_of_one_call_is_starved_by_neither_side(spine: Spine) -> None:
    await backlog(spine, unknown=5, pending=5)
    lane = limited(spine, Limits(concurrency=1))
    assert len(await claim(spine, lane, lease=5)) == 1
    assert await take(spine, lane) == []
    await spine.advance(6)
    assert len(await take(spine, lane)) == 1
    assert await claim(spine, lane) == []


async def test_a_lease_that_is_over_takes_no_place(spine: Spine) -> None:
    """A reconciler that died with its takes must not stop the lane: only another reconciler ends them."""
    await backlog(spine, unknown=3, pending=10)
    lane = limited(spine, Limits(concurrency=6, lookup_share=0.5))
    assert len(await take(spine, lane)) == 3
    await spine.advance(31)
    assert len(await take(spine, lane)) == 3
    assert len(await claim(spine, lane)) == 3


async def test_hazard_72_exact_is_exact_whoever_claims_at_once(spine: Spine) -> None:
    """Ten claims and takes at once, each of which would see 0 of 7; the same without `exact` exceeds it."""
    await backlog(spine, unknown=10, pending=40)
    lane = limited(spine, Limits(concurrency=7, exact=True))
    rounds = await asyncio.gather(*(claim(spine, lane, 5) for _ in range(7)), *(take(spine, lane, 5) for _ in range(3)))
    assert sum(len(rows) for rows in rounds) <= 7
    (held,) = await spine.all("SELECT count(*) AS n FROM idem.outbox WHERE claim_token IS NOT NULL")
    # First sends leave what is due to be asked about free, so that a claim after the last claim may find no room.
    assert 4 <= held["n"] <= 7
