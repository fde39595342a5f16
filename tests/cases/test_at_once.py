"""Everything runs at once over the same rows: workers, sweeper, reconciler and clients that retry."""

import asyncio
import os

from fix_spine import Spine
from fix_waiting import until

from idem.decisions import Replay
from idem.outbox.config.settings import ReconcilerSettings, WorkerSettings
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.worker.worker import Worker
from idem.reconciler.daemon import Reconciler

INTENTS = int(os.environ.get("IDEM_TEST_AT_ONCE", "60"))


async def test_every_key_is_called_once_whoever_looks_at_its_row(spine: Spine) -> None:
    """IB-004, IB-007, IB-008, IB-074, IB-088: rows are worked on while they are inserted. Two workers claim them, a
    sweep and a reconciler pass go over them all the time, and each client asks again before its first call has ended.
    One call for each key, no deadlock, no dead letter.
    """
    stop = asyncio.Event()
    database = Database(spine.url, name="idem-test-crowd", size=8, timeouts=Timeouts(statement=10, connect=5))
    await database.open()
    workers = [
        Worker(database, spine.catalogue, WorkerSettings(lease=30, margin=1, slots=4, poll=0.05)) for _ in range(2)
    ]
    running = [asyncio.create_task(worker.run(stop)) for worker in workers]

    async def sweep() -> None:
        while not stop.is_set():
            async with database.connection() as connection:
                await sweep_expired(connection, spine.catalogue, batch=100)
            await asyncio.sleep(0.01)

    async def reconcile() -> None:
        reconciler = Reconciler(database, spine.catalogue, ReconcilerSettings(lease=30), slots=4, margin=1)
        while not stop.is_set():
            await reconciler.run_once()
            await asyncio.sleep(0.01)
        await reconciler.close()

    running += [asyncio.create_task(sweep()), asyncio.create_task(reconcile())]
    before = await deadlocks(spine)
    for n in range(INTENTS):
        await asyncio.to_thread(spine.accept, f"k{n}")
        await asyncio.to_thread(spine.accept, f"k{n}")
        assert not any(task.done() for task in running)
    await until(lambda: spine.lacks("FROM idem.idempotency_keys WHERE state <> 'completed'"))
    stop.set()
    await asyncio.wait_for(asyncio.gather(*running), 30)
    await database.close()
    answers = {type(await asyncio.to_thread(spine.accept, f"k{n}")) for n in range(INTENTS)}
    assert answers == {Replay}
    calls = [len(sends) for sends in spine.bank.log.sends_by_key().values()]
    assert calls == [1] * INTENTS
    assert await deadlocks(spine) == before
    assert await spine.all("SELECT FROM idem.dead_letters") == []


async def deadlocks(spine: Spine) -> int:
    """How many deadlocks the server has counted in this database."""
    row = await spine.one("SELECT deadlocks AS n FROM pg_stat_database WHERE datname = current_database()")
    return int(row["n"])


async def test_a_finished_request_that_comes_a_hundred_times_writes_and_sends_nothing(spine: Spine) -> None:
    """IB-033."""
    await spine.sent()
    before = await _counts(spine)
    answers = {bytes(answer.answer.body) for _ in range(100) if isinstance(answer := spine.accept(), Replay)}
    assert len(answers) == 1
    assert await _counts(spine) == before
    assert (await spine.work()).claimed == 0
    assert len(spine.bank.log.sends()) == 1


async def _counts(spine: Spine) -> list[int]:
    tables = ("outbox", "requests", "intents", "evidence", "events", "dead_letters", "idempotency_keys")
    return [(await spine.one(f"SELECT count(*) AS n FROM idem.{table}"))["n"] for table in tables]
