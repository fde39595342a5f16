"""Calls at a time of the whole fleet: first sends, replays and look-ups together; exact where the lane asks for it."""

import asyncio

import pytest
from fix_spine import Spine
from fix_steps import claim, claim_due
from protection.limited import backlog, limited

from idem.outbox.domain.limits import Limits


@pytest.mark.parametrize(
    ("unknown", "pending", "paused", "share", "claimed", "taken"),
    [(8, 0, False, 0.3, 0, 3), (2, 20, False, 0.5, 8, 2), (0, 20, False, 0.5, 10, 0), (5, 20, True, 0.5, 10, 0)],
    ids=["who asks has its share and no more", "first sends leave free what is due to be asked about",
         "where nothing is to be asked first sends have it all", "paused look-ups keep nothing free"],
)  # fmt: skip
async def test_first_sends_and_look_ups_share_the_calls(
    spine: Spine, unknown: int, pending: int, paused: bool, share: float, claimed: int, taken: int
) -> None:
    """Else sends that never stop would keep every question waiting until its replay window has passed."""
    await backlog(spine, unknown=unknown, pending=pending)
    if paused:
        await spine.execute("INSERT INTO idem.lanes (provider, account, lookups_paused) VALUES ('keyed', '', true)")
    limited(spine, Limits(concurrency=10, lookup_share=share))
    assert len(await claim(spine, limit=100)) == claimed
    assert len(await claim_due(spine, limit=100)) == taken
    assert await claim(spine, limit=100) == await claim_due(spine, limit=100) == []


async def test_a_fleet_of_one_call_is_starved_by_neither_side(spine: Spine) -> None:
    await backlog(spine, unknown=5, pending=5)
    limited(spine, Limits(concurrency=1))
    assert len(await claim(spine, limit=100, lease=5)) == 1
    assert await claim_due(spine, limit=100) == []
    await spine.advance(6)
    assert len(await claim_due(spine, limit=100)) == 1
    assert await claim(spine, limit=100) == []


async def test_a_lease_that_is_over_takes_no_place(spine: Spine) -> None:
    """A reconciler that died with its takes must not stop the lane: only another reconciler ends them."""
    await backlog(spine, unknown=3, pending=10)
    limited(spine, Limits(concurrency=6, lookup_share=0.5))
    assert len(await claim_due(spine, limit=100)) == 3
    await spine.advance(31)
    assert len(await claim_due(spine, limit=100)) == 3
    assert len(await claim(spine, limit=100)) == 3


async def test_hazard_72_exact_is_exact_whoever_claims_at_once(spine: Spine) -> None:
    """Ten claims and takes at once, each of which would see 0 of 7; the same without `exact` exceeds it."""
    await backlog(spine, unknown=10, pending=40)
    limited(spine, Limits(concurrency=7, exact=True))
    rounds = await asyncio.gather(
        *(claim(spine, limit=5) for _ in range(7)), *(claim_due(spine, limit=5) for _ in range(3))
    )
    assert sum(len(rows) for rows in rounds) <= 7
    (held,) = await spine.all("SELECT count(*) AS n FROM idem.outbox WHERE claim_token IS NOT NULL")
    # First sends leave what is due to be asked about free, so that a claim after the last claim may find no room.
    assert 4 <= held["n"] <= 7
