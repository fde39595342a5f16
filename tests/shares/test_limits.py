"""What else stands in the claim: the concurrency of the fleet, exactly, and a pause that reads no row."""

import asyncio
from dataclasses import replace

import psycopg
import pytest
from fix_spine import Spine
from schema import explained, hot_statements
from shares.queues import grab, lane, plant

from idem.outbox.worker.claim import CLAIM
from idem.outbox.worker.fairness import TenantRound

WAITING = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def test_hazard_72_two_claims_at_once_never_exceed_an_exact_limit(spine: Spine) -> None:
    """The second claim waits for the first one's commit, and counts what that has claimed."""
    plant(spine.url, 20, origin=spine.bank.url)
    exact = replace(lane(spine), concurrency=5, asking=2, exact=True)
    async with spine.database.connection() as one, spine.database.connection() as other:
        async with one.transaction():
            assert len(await grab(one, exact, 5)) == 5
            second = asyncio.create_task(grab(other, exact, 5))
            while (await spine.one(WAITING))["n"] == 0:
                assert not second.done()
                await asyncio.sleep(0.01)
        assert await second == []


async def test_what_is_not_exact_waits_for_nobody(spine: Spine) -> None:
    plant(spine.url, 20, origin=spine.bank.url)
    limited = replace(lane(spine), concurrency=5, asking=2)
    async with spine.database.connection() as one, spine.database.connection() as other, one.transaction():
        assert len(await grab(one, limited, 5)) == 5
        assert len(await grab(other, limited, 5)) == 5


@pytest.mark.parametrize("queued", [False, True])
async def test_eight_claimers_of_an_exact_lane_that_has_no_row_yet(spine: Spine, queued: bool) -> None:
    plant(spine.url, 40, origin=spine.bank.url)
    exact = replace(lane(spine), concurrency=5, asking=2, exact=True)
    start = asyncio.Event()

    async def claimer() -> int:
        turns = TenantRound()
        turns.queued = queued
        async with spine.database.connection() as connection:
            await start.wait()
            return len(await grab(connection, exact, 3, turns))

    claimers = [asyncio.create_task(claimer()) for _ in range(8)]
    await asyncio.sleep(0.1)
    start.set()
    assert sum(await asyncio.gather(*claimers)) == 5
    assert (await spine.one("SELECT count(*) AS n FROM idem.lanes"))["n"] == 1


SEEN = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'idem.outbox'::regclass"


@pytest.mark.parametrize("account", ["keyed", ""])
@pytest.mark.parametrize("turns", [0, 100])
def test_hazard_48_of_a_paused_lane_no_row_is_read(spine: Spine, account: str, turns: int) -> None:
    """Neither that of one account nor that of all of them; not by a claim that looks for tenants either."""
    plant(spine.url, 200, origin=spine.bank.url)
    values = {
        **hot_statements.HOLD, "provider": "keyed", "account": "keyed", "origin": spine.bank.url, "environment": "test",
        "calls": ["pay.keyed"], "formats": [1], "concurrency": 500, "turns": turns, "asking": 5,
    }  # fmt: skip
    read: list[int] = []
    for pause in ("SELECT %s::text", "INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', %s, true)"):
        with psycopg.connect(spine.url) as connection:
            connection.execute(pause, [account])
            explained.explain(connection, CLAIM, values)
            read += connection.execute(SEEN).fetchone() or ()
            connection.rollback()
    assert read[0] >= 100
    assert read[1] == 0
