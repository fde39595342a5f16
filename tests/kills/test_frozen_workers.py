"""Real worker processes that are frozen at the worst place, and lines that break all the time: one effect each."""

import asyncio
import contextlib
import os
import random
import signal
from uuid import UUID

import kill_worker
import pytest
from fix_forking import started
from fix_line import target, through
from fix_spine import Spine

from idem.decisions import Replay
from idem.outbox.config.settings import ReconcilerSettings, SweeperSettings, WorkerSettings
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.worker.worker import Worker
from idem.reconciler.daemon import Reconciler
from idem.sweeper.daemon import Sweeper
from idem.testing.proxy import Direction, Proxy, ProxyAction


async def effects(spine: Spine, intent: UUID, kind: str) -> int:
    row = await spine.one("SELECT provider_key::text AS k FROM idem.requests WHERE intent_id = %(i)s", i=intent)
    return len(spine.bank.log.effects(**{"key" if kind == "keyed" else "reference": row["k"]}))


@pytest.mark.quick
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["keyed", "keyless"])
async def test_hazard_1_a_worker_frozen_before_its_first_byte(spine: Spine, kind: str) -> None:
    """SIGSTOP when its claim is committed; swept, asked about, sent by another; then it wakes, its lease unused."""
    frozen = asyncio.Event()
    pid = 0

    def freeze(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        if pid and direction == "to_client" and b"/payments" in data and not frozen.is_set():
            os.kill(pid, signal.SIGSTOP)
            frozen.set()
        return "pass"

    async with Proxy(target(spine.url), freeze) as database:
        process = started(kill_worker.run, through(spine.url, database), spine.bank.url)
        pid = process.pid or 0
        try:
            intent = spine.accepted(operation=f"pay.{kind}")
            await asyncio.wait_for(frozen.wait(), 40)
            for _ in range(6):
                await spine.sweep(after=4000)
                await spine.reconcile(hasten=True)
                await spine.work()
            first = spine.accept(operation=f"pay.{kind}")
            assert isinstance(first, Replay)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(1)
            os.kill(pid, signal.SIGTERM)
            await asyncio.to_thread(process.join, 90)
            assert process.exitcode == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert await effects(spine, intent, kind) == 1
    assert await spine.letters(intent) == []
    again = spine.accept(operation=f"pay.{kind}")
    assert isinstance(again, Replay) and again.answer == first.answer


@pytest.mark.timeout(170)
@pytest.mark.parametrize("seed", [1, 2])
async def test_daemons_on_a_line_that_breaks_all_the_time(spine: Spine, seed: int) -> None:
    """Two workers, two reconcilers, two sweepers over a line that is cut at random, against a bank that misbehaves."""
    chance = random.Random(seed)
    broken, cuts = True, 0

    def cut(_number: int, _direction: Direction, _data: bytes) -> ProxyAction:
        nonlocal cuts
        if not broken or chance.random() > 0.03:
            return "pass"
        cuts += 1
        return "cut"

    faults = ["none", "act_then_drop", "act_then_500", "drop_before_acting", "act_then_reset", "503", "cut_body", "401"]
    spine.bank.script(None, [chance.choice(faults) for _ in range(60)])
    async with Proxy(target(spine.url), cut) as proxy:
        database = Database(
            through(spine.url, proxy), name="idem-test-chaos", size=6, timeouts=Timeouts(statement=5, lock=2, connect=2)
        )
        await database.open()
        stop = asyncio.Event()
        daemons = [
            one.run(stop)
            for _ in range(2)
            for one in (
                Worker(database, spine.catalogue, WorkerSettings(lease=10, margin=1, slots=4, poll=0.1)),
                Reconciler(database, spine.catalogue, ReconcilerSettings(lease=30, interval=0.3), margin=1),
                Sweeper(database, spine.catalogue, SweeperSettings(interval=0.3)),
            )
        ]
        running = [asyncio.create_task(daemon) for daemon in daemons]
        wanted = [(kind, n) for n in range(20) for kind in ("keyed", "keyless")]
        intents = {(kind, n): spine.accepted(f"k{n}", operation=f"pay.{kind}") for kind, n in wanted}
        told: dict[tuple[str, int], Replay] = {}
        for round in range(300):  # a slow machine needs more of them than a fast one: the rest is asserted below
            await asyncio.sleep(0.2)
            if round > 20:
                broken = False
                if not await spine.all("SELECT FROM idem.outbox WHERE status = 'claimed'"):
                    await spine.advance(200)  # never under a live claim: three sweeps in a row are `crashes_worker`
            for kind, n in intents:
                decision = spine.accept(f"k{n}", operation=f"pay.{kind}") if (n + round) % 7 == 0 else None
                if isinstance(decision, Replay):
                    assert told.setdefault((kind, n), decision).answer == decision.answer
            assert not any(task.done() for task in running), "a daemon ended by itself"
            if not await spine.all("SELECT FROM idem.outbox"):
                break
        stop.set()
        await asyncio.wait_for(asyncio.gather(*running), 60)
        await database.close()
    assert cuts > 3
    assert not await spine.all("SELECT intent_id, status, attempt FROM idem.outbox"), "rows that never came to rest"
    for (kind, _), intent in intents.items():
        assert await effects(spine, intent, kind) == 1, (kind, intent, await spine.evidence(intent))
        assert await spine.letters(intent) == [], await spine.evidence(intent)
        assert (await spine.key(intent))["state"] == "completed"
