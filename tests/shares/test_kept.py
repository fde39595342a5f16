"""The call that a shared lane keeps free: for tenants that hold none, in one process and in the whole fleet."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import Spine
from fix_sql import query
from shares.gate import Gate
from shares.queues import grab, lane, plant, tenants

from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.fairness import SHARED, WIDTH, TenantRound

pytestmark = pytest.mark.timeout(60)


async def spare(connection: Any, name: LaneScope, turns: TenantRound | None = None, holder: str = "test") -> list[str]:
    rows = await claims.claim(
        connection,
        name,
        token=uuid4(),
        holder=holder,
        lease=60,
        limit=1,
        now=clock.boottime(),
        tenants=turns,
        spare=True,
    )
    return await tenants(connection, rows)


async def test_what_is_kept_is_for_tenants_that_hold_no_call(spine: Spine) -> None:
    plant(spine.url, 50, tenant="bulk", origin=spine.bank.url)
    async with spine.database.connection() as connection:
        assert set(await tenants(connection, await grab(connection, lane(spine), 4))) == {"bulk"}
        assert await spare(connection, lane(spine)) == []
        for tenant in ("anna", "zoe"):
            plant(spine.url, 2, tenant=tenant, due_in=-1, origin=spine.bank.url)
        turns = TenantRound()
        both = [*await spare(connection, lane(spine), turns), *await spare(connection, lane(spine), turns)]
        assert sorted(both) == ["anna", "zoe"]
        assert turns.others
        assert await spare(connection, lane(spine), turns) == []
        assert not turns.others
        # What another process holds takes up none of this one's slots.
        assert len(await spare(connection, lane(spine), holder="another")) == 1


async def test_of_a_limited_fleet_nobody_gets_a_second_call_by_another_process(spine: Spine) -> None:
    plant(spine.url, 50, tenant="bulk", origin=spine.bank.url)
    fleet = replace(lane(spine), concurrency=5, asking=1)
    async with spine.database.connection() as connection:
        now, turns = clock.boottime(), TenantRound()
        rows = await claims.claim(
            connection, fleet, token=uuid4(), holder="test", lease=60, limit=8, now=now, keep=1, tenants=turns
        )
        assert (len(rows), turns.queued) == (4, True)
        assert await spare(connection, fleet, holder="another") == []
        plant(spine.url, 1, tenant="anna", due_in=-1, origin=spine.bank.url)
        assert await spare(connection, fleet, holder="another") == ["anna"]
        plant(spine.url, 1, tenant="zoe", due_in=-1, origin=spine.bank.url)
        assert await spare(connection, fleet, holder="another") == []


async def test_a_call_of_a_process_that_is_gone_holds_nothing(spine: Spine) -> None:
    plant(spine.url, 2, tenant="anna", origin=spine.bank.url)
    async with spine.database.connection() as connection:
        assert len(await grab(connection, lane(spine), 1)) == 1
        assert await spare(connection, lane(spine)) == []
        await connection.execute(
            "UPDATE idem.outbox SET claimed_until = statement_timestamp() WHERE claim_token IS NOT NULL"
        )
        assert await spare(connection, lane(spine)) == ["anna"]


async def test_thousands_who_wait_for_their_back_off_hide_nobody(spine: Spine) -> None:
    plant(spine.url, 500, due_in=3600, origin=spine.bank.url)
    plant(spine.url, 1, tenant="tenant 000250 b", origin=spine.bank.url)
    turns, found = TenantRound(), list[str]()
    async with spine.database.connection() as connection:
        for _ in range(500 // WIDTH + 2):
            found += await spare(connection, lane(spine), turns)
    assert found == ["tenant 000250 b"]


def test_one_is_kept_while_tenants_share_the_lane() -> None:
    turns = TenantRound()
    turns.claimed(["a", "a"], 0.0, 8, "a")
    turns.claimed(["a"], 1.0, 8, "a")
    assert turns.keep(2.0, 8) == 0
    turns.claimed(["b"], 3.0, 8, "b")
    assert [turns.keep(now, 8) for now in (3.0, 2.9 + SHARED, 3.0 + SHARED)] == [1, 1, 0]
    assert (turns.keep(4.0, 2), turns.keep(4.0, 1)) == (1, 0)
    turns.claimed_spare(["a"], SHARED, 1, "a")
    assert turns.keep(2 * SHARED - 1, 8) == 1


async def test_who_comes_during_a_bulk_run_waits_for_no_call_of_it(gate: Gate) -> None:
    async with gate.working(shared=True) as accept:
        accept("bulk", 8)
        await gate.reaches(bulk=3, others=0)
        accept("anna")
        await gate.reaches(bulk=3, others=1)
        # The call that ends makes room for others again, not for the bulk run.
        await gate.end_one()
        await gate.reaches(bulk=2, others=1)
        accept("zoe")
        await gate.reaches(bulk=2, others=2)


async def test_the_bulk_run_goes_on_in_what_is_not_kept(gate: Gate) -> None:
    async with gate.working(shared=True) as accept:
        accept("bulk", 9)
        for _ in range(6):
            await gate.reaches(bulk=3, others=0)
            await gate.end_one()
        await gate.reaches(bulk=3, others=0)


async def test_the_only_tenant_has_every_slot(gate: Gate) -> None:
    async with gate.working(shared=False) as accept:
        accept("bulk", 8)
        await gate.reaches(bulk=4, others=0)


async def test_one_is_kept_of_a_limited_fleet(gate: Gate) -> None:
    async with gate.working(shared=True, limits={"concurrency": 3}) as accept:
        accept("bulk", 8)
        await gate.reaches(bulk=2, others=0)
        accept("anna")
        await gate.reaches(bulk=2, others=1)


async def test_a_limited_fleet_goes_on_as_its_calls_end_not_at_the_next_poll(gate: Gate) -> None:
    """Slots are free all the time; what ends makes room as soon as it is settled, a minute before the next poll."""
    async with gate.working(shared=False, limits={"concurrency": 2}) as accept:
        accept("bulk", 9)
        for _ in range(7):
            await gate.reaches(bulk=2, others=0)
            await gate.end_one()
        await gate.reaches(bulk=2, others=0)


async def test_a_row_that_comes_due_without_a_hint_is_found_by_a_poll(gate: Gate, db_url: str) -> None:
    async with gate.working(shared=True, poll=0.2) as accept:
        accept("bulk", 8)
        await gate.reaches(bulk=3, others=0)
        query(db_url, "UPDATE idem.outbox SET tenant_id = 'anna' WHERE status = 'pending'")
        await gate.reaches(bulk=4, others=0)
