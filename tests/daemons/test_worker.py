"""The worker as a daemon: lost answers of its database, shutdown, wake-up, an outage."""

import asyncio
from typing import Any

import pytest
from fix_line import database_proxy, settles
from fix_spine import Spine
from fix_steps import working
from fix_waiting import until

from idem.decisions import Replay
from idem.outbox.database.notify import Nudge
from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.worker import claim
from idem.testing.proxy import Direction, ProxyAction


async def done(spine: Spine) -> bool:
    return await spine.all("SELECT FROM idem.idempotency_keys WHERE state <> 'completed'") == []


async def test_hazards_21_69_a_claim_whose_answer_is_lost_is_given_back(spine: Spine) -> None:
    """The claim committed, the worker never heard of it: it finds its own token, and nothing becomes unknown."""
    intents = [spine.accepted(f"k{n}", operation="pay.keyless") for n in range(3)]
    async with database_proxy(spine) as (proxy, url):
        cut: list[bool] = []

        def watch(_number: int, direction: Direction, data: bytes) -> ProxyAction:
            if direction == "to_client" and b"/payments" in data and not cut:
                cut.append(True)
                return "cut"
            return "pass"

        proxy.watch = watch
        async with working(spine, url=url):
            await until(lambda: done(spine))
    assert cut
    for intent in intents:
        kinds = [(kind, outcome) for source, kind, outcome in await spine.evidence(intent) if source == "worker"]
        assert kinds == [("report", "not_executed:given_back"), ("report", "succeeded")]
    assert spine.effects() == 3
    assert await spine.all("SELECT FROM idem.evidence WHERE source = 'sweeper'") == []


async def test_a_claim_that_committed_and_cannot_be_read_is_given_back(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent: it does not wait for its lease, and does not become unknown."""
    intent = spine.accepted()
    failed: list[bool] = []

    def once(*args: Any) -> FrozenRequest:
        if not failed:
            failed.append(True)
            raise ZeroDivisionError
        return FrozenRequest(*args)

    monkeypatch.setattr(claim, "FrozenRequest", once)
    async with working(spine):
        await until(lambda: done(spine))
    assert failed
    assert [kind for _, *kind in await spine.evidence(intent)][1:] == [
        ["report", "not_executed:given_back"], ["report", "succeeded"],
    ]  # fmt: skip


async def test_a_settle_whose_answer_is_lost_is_written_once(spine: Spine) -> None:
    """Hazard 21 (b)."""
    intent = spine.accepted()
    async with database_proxy(spine) as (proxy, url):
        settling: set[int] = set()
        cut: list[bool] = []

        def watch(number: int, direction: Direction, data: bytes) -> ProxyAction:
            if direction == "to_server" and settles(data):
                settling.add(number)
            elif direction == "to_client" and number in settling and b"SELECT 1" in data and not cut:
                cut.append(True)  # not the answer to its preparation
                return "cut"
            return "pass"

        proxy.watch = watch
        async with working(spine, url=url) as (worker, _):
            await until(lambda: done(spine))
            await worker.settler.drain()
            assert worker.settler.fates == {"already": 1}
    assert cut
    reports = [e for e in await spine.evidence(intent) if e[0] == "worker"]
    assert reports == [("worker", "report", "succeeded")]


async def test_sigterm_finishes_what_runs_and_claims_nothing_more(spine: Spine) -> None:
    """IB-168, IB-169: the running call is recorded; what has not begun is still pending, not unknown."""
    for n in range(12):
        spine.accepted(f"k{n}")
    began = asyncio.Event()
    release = asyncio.Event()

    async def hold(_: object) -> None:
        began.set()
        await release.wait()

    spine.bank.when("received", None, hold)
    async with working(spine, slots=4) as (_, stop):
        await asyncio.wait_for(began.wait(), 10)
        stop.set()
        await asyncio.sleep(0.3)
        release.set()
    states = await spine.all("SELECT state, count(*) AS n FROM idem.idempotency_keys GROUP BY state")
    counted = {s["state"]: s["n"] for s in states}
    assert set(counted) == {"completed", "in_progress"}
    assert 1 <= counted["completed"] <= 4
    assert {r["status"] for r in await spine.all("SELECT status FROM idem.outbox")} == {"pending"}
    assert [d["ended_how"] for d in await spine.all("SELECT ended_how FROM idem.daemons")] == ["clean"]
    assert len(spine.bank.log.sends()) == counted["completed"]


async def test_a_nudge_wakes_an_idle_worker_and_its_listener_comes_back(spine: Spine, db_url: str) -> None:
    """Hazard 42, IB-056: the hint is sent after the commit; a killed listener is set up again by itself."""
    nudge = Nudge(db_url)
    spine.acceptor.nudge = nudge
    async with working(spine, poll=30.0) as (worker, _):
        await asyncio.sleep(0.5)
        for n in range(2):
            await asyncio.to_thread(spine.accepted, f"k{n}")
            await until(lambda: done(spine), seconds=10)
            if n == 0:
                await spine.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE query IN ('LISTEN idem_outbox', 'SELECT 1') AND datname = current_database()"
                    " AND pid <> pg_backend_pid()"
                )
                await asyncio.sleep(2.5)
        assert worker.settler.fates["settled"] == 2
    nudge.close()


async def test_the_listener_holds_no_transaction_open(spine: Spine) -> None:
    """IB-063."""
    async with working(spine):
        await asyncio.sleep(0.5)
        for _ in range(10):
            rows = await spine.all(
                "SELECT state FROM pg_stat_activity WHERE application_name = 'idem-test-worker'"
                " AND state LIKE 'idle in transaction%%' AND datname = current_database()"
            )
            assert rows == []
            await asyncio.sleep(0.05)


async def test_an_outage_of_the_database_loses_nothing(spine: Spine) -> None:
    """IB-058, IB-066, IB-142: lines are cut and refused for a while, in the middle of calls; it recovers by itself."""
    async with database_proxy(spine) as (proxy, url), working(spine, url=url):
        for n in range(5):
            spine.accepted(f"k{n}")
        await until(lambda: done(spine))
        await proxy.stop()
        for n in range(5, 10):
            spine.accepted(f"k{n}")
        await asyncio.sleep(3)
        await proxy.listen()
        await until(lambda: done(spine), seconds=30)
    for n in range(10):
        assert isinstance(spine.accept(f"k{n}"), Replay)
    assert spine.effects() == 10


async def test_hazard_32_no_transaction_is_open_while_a_call_runs(spine: Spine) -> None:
    """IB-072: as many slow calls as slots, a pool of one connection would do."""
    for n in range(4):
        spine.accepted(f"k{n}")
    seen: list[list[object]] = []

    async def look(_: object) -> None:
        rows = await spine.all(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'idem-test-worker'"
            " AND datname = current_database() AND xact_start IS NOT NULL AND state LIKE 'idle in%%'"
        )
        seen.append(list(rows))

    spine.bank.when("received", None, look)
    async with working(spine, slots=4):
        await until(lambda: done(spine))
    assert seen == [[]] * 4
