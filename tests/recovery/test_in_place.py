"""A database that goes back under connections that stay: nothing is claimed before the next heartbeat notices it."""

from typing import Any
from uuid import uuid4

import pytest
from fix_spine import Spine
from fix_waiting import stopping
from settling import shop

from idem.outbox.daemon.daemon import Life
from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.values import clock
from idem.outbox.worker import claim
from idem.outbox.worker.worker import Worker
from idem.reconciler import due


async def held(spine: Spine, kind: str, beats: int, holder: str, table: int) -> list[Any]:
    """What a worker or a reconciler takes that knows of so many heartbeats, and of this outbox."""
    name, _ = lane_scopes(spine.catalogue)["keyed", "keyed"]
    contract = spine.catalogue.providers["keyed"].contract
    terms: Any = {
        "token": uuid4(), "holder": holder, "lease": 30, "limit": 5, "now": clock.boottime(), "beats": beats,
        "table": table,
    }  # fmt: skip
    async with spine.database.connection() as connection:
        if kind == "worker":
            return await claim.claim(connection, name, **terms)
        return await due.claim_due(connection, name, contract, **terms)


@pytest.mark.parametrize("kind", ["worker", "reconciler"])
@pytest.mark.parametrize("went_back", ["fewer heartbeats", "no row"])
async def test_nothing_is_taken_where_a_sign_of_life_is_missing(spine: Spine, kind: str, went_back: str) -> None:
    spine.accepted()
    if kind == "reconciler":
        await spine.work(faults=["act_then_drop"])
        await spine.advance(10)
    life = Life(kind)
    async with spine.database.connection() as connection:
        for _ in range(3):
            beat = await life.beat(connection)
        if went_back == "no row":
            await connection.execute("DELETE FROM idem.daemons WHERE id = %s", [life.id])
        else:
            await connection.execute("UPDATE idem.daemons SET heartbeats = 2 WHERE id = %s", [life.id])
    assert beat.number == 3
    assert await held(spine, kind, 3, life.id, beat.table) == []
    if went_back == "fewer heartbeats":
        assert await held(spine, kind, 2, life.id, beat.table + 1) == [], "another outbox"
    assert len(await held(spine, kind, 0 if went_back == "no row" else 2, life.id, beat.table)) == 1


async def test_a_worker_asks_with_the_signs_of_life_that_it_knows(spine: Spine) -> None:
    spine.accepted()
    one = Worker(spine.database, spine.catalogue, spine.settings)
    async with spine.database.connection() as connection:
        beat = await one.life.beat(connection)
        one.life.beats, one.life.table = beat.number, beat.table
        await connection.execute("DELETE FROM idem.daemons")
    async with stopping(one):
        assert (await one.run_once()).claimed == 0
        assert shop.sends(spine) == []
        one.life.beats = 0
        assert (await one.run_once()).claimed == 1
