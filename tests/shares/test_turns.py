"""Turns: equal shares of a lane while rows wait; the order of waiting within a tenant, and where nobody queues."""

import asyncio
from collections import Counter
from dataclasses import replace
from uuid import UUID

from fix_spine import Spine
from shares.queues import grab, ids, lane, plant, tenants

from idem.outbox.worker.fairness import WIDTH, TenantRound

CLAIMERS = 8


async def test_a_bulk_run_is_in_nobodys_way(spine: Spine) -> None:
    """Twenty others come after 2,000 rows of one tenant; the first claim finds the queue, three more serve them all."""
    plant(spine.url, 2000, tenant="bulk", origin=spine.bank.url)
    plant(spine.url, 20, due_in=-60, origin=spine.bank.url)
    turns = TenantRound()
    async with spine.database.connection() as connection:
        first = await tenants(connection, await grab(connection, lane(spine), 8, turns))
        served = Counter[str]()
        for _ in range(3):
            rows = await grab(connection, lane(spine), 8, turns)
            assert len(rows) == 8
            served.update(await tenants(connection, rows))
    assert set(first) == {"bulk"}
    assert len(served) == 21
    assert all(served[tenant] == 1 for tenant in served if tenant != "bulk")


async def test_shares_are_equal_whatever_the_size_of_a_claim(spine: Spine) -> None:
    for tenant, rows in (("a", 400), ("b", 100), ("c", 200)):
        plant(spine.url, rows, tenant=tenant, origin=spine.bank.url)
    turns, served = TenantRound(), Counter[str]()
    turns.queued = True
    async with spine.database.connection() as connection:
        for limit in [1, 2, 4, 5, 7, 8] * 8:
            served.update(await tenants(connection, await grab(connection, lane(spine), limit, turns)))
    assert served.total() == 216
    assert max(served.values()) - min(served.values()) <= 2


async def test_within_a_tenant_who_waits_longest_comes_first(spine: Spine) -> None:
    for tenant in ("a", "b", "c"):
        plant(spine.url, 50, tenant=tenant, origin=spine.bank.url)
    turns, claimed = TenantRound(), []
    async with spine.database.connection() as connection:
        while rows := await grab(connection, lane(spine), 7, turns):
            claimed.append(rows)
        order = await connection.execute("SELECT id, tenant_id FROM idem.outbox ORDER BY tenant_id, available_at, id")
        expected = await order.fetchall()
    place = {row: number for number, rows in enumerate(claimed) for row in ids(rows)}
    assert len(place) == 150
    for tenant in ("a", "b", "c"):
        places = [place[row] for row, whose in expected if whose == tenant]
        assert places == sorted(places)


async def test_thousands_who_wait_for_their_back_off_starve_nobody(spine: Spine) -> None:
    plant(spine.url, 5000, due_in=3600, origin=spine.bank.url)
    plant(spine.url, 1, tenant="tenant 002500 b", origin=spine.bank.url)
    turns = TenantRound()
    async with spine.database.connection() as connection:
        assert len(await grab(connection, lane(spine), 8, turns)) == 1
        plant(spine.url, 2000, tenant="bulk", origin=spine.bank.url)
        plant(spine.url, 1, tenant="tenant 002500 b", due_in=-1, origin=spine.bank.url)
        served = set[str]()
        for _ in range(5000 // WIDTH + 3):
            rows = await grab(connection, lane(spine), 8, turns)
            assert len(rows) == 8
            served.update(await tenants(connection, rows))
    assert served == {"bulk", "tenant 002500 b"}


async def test_only_a_claim_that_took_all_it_could_looks_for_others(spine: Spine) -> None:
    """An idle poll, and one that empties the queue, read the queue in its order and nothing else."""
    turns = TenantRound()
    async with spine.database.connection() as connection:
        assert (await grab(connection, lane(spine), 4, turns), turns.width) == ([], 0)
        plant(spine.url, 5, origin=spine.bank.url)
        assert (len(await grab(connection, lane(spine), 4, turns)), turns.width) == (4, WIDTH)
        assert (len(await grab(connection, lane(spine), 4, turns)), turns.width) == (1, 0)
        # A fleet that makes all the calls it may says nothing about the queue, so nothing is taken in its order.
        plant(spine.url, 5, origin=spine.bank.url)
        full = replace(lane(spine), concurrency=5, asking=1)
        assert (await grab(connection, full, 4, turns), turns.width) == ([], WIDTH)


async def test_rows_from_before_the_shares_have_their_turn_too(spine: Spine) -> None:
    plant(spine.url, 20, tenant="", origin=spine.bank.url)
    plant(spine.url, 20, tenant="b", origin=spine.bank.url)
    turns = TenantRound()
    turns.queued = True
    async with spine.database.connection() as connection:
        served = Counter(await tenants(connection, await grab(connection, lane(spine), 8, turns)))
        # Written again, a row gets the tenant of its key, which here is as unknown as before.
        assert served == {"": 4, "b": 4}


async def test_eight_claimers_at_once_take_every_row_once(spine: Spine) -> None:
    for tenant in ("a", "b", "c"):
        plant(spine.url, 60, tenant=tenant, origin=spine.bank.url)
    plant(spine.url, 60, origin=spine.bank.url)
    start = asyncio.Event()

    async def claimer(number: int) -> list[UUID]:
        turns, misses = TenantRound(), 0
        taken: list[UUID] = []
        turns.queued = number % 2 == 0
        async with spine.database.connection() as connection:
            await start.wait()
            while misses < 3:
                rows = await grab(connection, lane(spine), 1 + number, turns)
                misses = 0 if rows else misses + 1
                taken += ids(rows)
        return taken

    claimers = [asyncio.create_task(claimer(number)) for number in range(CLAIMERS)]
    await asyncio.sleep(0.1)
    start.set()
    taken = [row for rows in await asyncio.gather(*claimers) for row in rows]
    assert len(taken) == len(set(taken)) == 240
    assert (await spine.one("SELECT count(*) AS n FROM idem.outbox WHERE status = 'claimed' AND attempt = 1"))[
        "n"
    ] == 240
