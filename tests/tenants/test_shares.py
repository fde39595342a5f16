"""One tenant's requests leave room for those of another: of the connections, and of the pool to the database."""

import asyncio

import psycopg
import pytest
from fix_api import client
from fix_line import through_a_line
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.http_server import descriptors
from idem.outbox.tenants.shares import Shares

WAITING = """
SELECT count(*)::integer AS n FROM pg_stat_activity
 WHERE application_name = 'idem-test-api' AND wait_event_type = 'Lock' AND datname = current_database()
"""


async def test_requests_that_wait_leave_connections_to_others(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "room", lambda reserved=0: 8)
    async with client(spine) as api:
        waits = [asyncio.create_task(api.ask(f"w{n}", wait=20)) for n in range(4)]
        await until(lambda: api.api.waiting == 4)
        refused = await api.ask("more", wait=20)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await api.ask("theirs", headers=await spine.token("other"))).status_code == 202
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await until(lambda: not api.api.waiting)
        # What has ended is counted no more.
        assert (await api.ask("more")).status_code == 202


@pytest.mark.parametrize(("pool", "most"), [(2, 1), (4, 2), (10, 7)])
async def test_requests_that_hang_leave_the_pool_to_other_tenants(spine: Spine, pool: int, most: int) -> None:
    """One tenant's requests hang behind a lock in the database, more than the pool has; another's are answered."""
    async with client(spine, settings=ApiSettings(port=0, pool=pool, timeout=20)) as api:
        theirs = await spine.token("other")
        assert (await api.ask("theirs", headers=theirs)).status_code == 202
        assert (await api.ask("locked")).status_code == 202
        async with await psycopg.AsyncConnection.connect(spine.url) as holder:
            # What a cancel locks is held: each of these requests waits in the database, with a connection.
            await holder.execute("SELECT FROM idem.outbox WHERE tenant_id = 't' FOR UPDATE")
            await holder.execute("SELECT FROM idem.intents WHERE tenant_id = 't' FOR UPDATE")
            await holder.execute("SELECT FROM idem.idempotency_keys WHERE tenant_id = 't' FOR UPDATE")
            intent = (await spine.one("SELECT id FROM idem.intents WHERE tenant_id = 't'"))["id"]
            hung = [asyncio.create_task(api.http.delete(f"/v1/intents/{intent}")) for _ in range(2 * pool)]
            async with asyncio.timeout(60):
                while (await spine.one(WAITING))["n"] < most:
                    await asyncio.sleep(0.02)
            for number in range(5):
                assert (await api.ask(f"theirs-{number}", headers=theirs)).status_code == 202
            assert (await spine.one(WAITING))["n"] == most
            assert not any(task.done() for task in hung)
            await holder.rollback()
        assert {answer.status_code for answer in await asyncio.gather(*hung)} == {200}
        assert len(api.api._store._shares) == 0


async def test_who_waits_too_long_behind_itself_hears_503(spine: Spine) -> None:
    """As whoever finds the pool in use: it is told that the database cannot answer now, in a bounded time."""
    async with client(spine, settings=ApiSettings(port=0, pool=2, timeout=1)) as api:
        assert (await api.ask("k")).status_code == 202
        with psycopg.connect(spine.url) as holder:
            holder.execute("LOCK TABLE idem.intents IN ACCESS EXCLUSIVE MODE")
            answers = await asyncio.gather(*(api.ask(f"k{n}") for n in range(8)))
            holder.rollback()
        assert {(a.status_code, a.json()["code"]) for a in answers} == {(503, "store_unavailable")}
        assert len(api.api._store._shares) == 0


async def test_while_the_database_is_away_nobody_waits_for_a_share(spine: Spine) -> None:
    async with through_a_line(spine, timeout=3) as (api, line):
        assert (await api.ask(key="before")).status_code == 202
        line.down = True
        answers = await asyncio.gather(*(api.ask(key=f"k{n}") for n in range(40)))
        assert {(a.status_code, a.json()["code"]) for a in answers} == {(503, "store_unavailable")}
        assert api.api._store._outage.on
        answers = await asyncio.gather(*(api.ask(key=f"k{n}") for n in range(40)))
        assert {(a.status_code, a.json()["code"]) for a in answers} == {(503, "store_unavailable")}
        assert len(api.api._store._shares) == 0


async def test_a_place_that_is_given_up_is_free_again() -> None:
    shares = Shares(1)
    assert shares.most == 1
    give_back = await shares.acquire("t", 5)
    with pytest.raises(TimeoutError):
        await shares.acquire("t", 0.05)
    cancelled = asyncio.create_task(shares.acquire("t", 60))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    (await shares.acquire("other", 5))()
    waiting = asyncio.create_task(shares.acquire("t", 60))
    await asyncio.sleep(0)
    give_back()
    (await waiting)()
    assert len(shares) == 0
