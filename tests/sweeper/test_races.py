"""The sweeper against everybody who may be at the same rows: one end each, no deadlock, nothing forgotten."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from fix_accept import Acceptor
from fix_spine import Spine
from psycopg import AsyncConnection

from idem.decisions import Accepted, Expired, InProgress, Retrying
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle import change_pages, decide, gate
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.settle.report import Report
from idem.outbox.settle.results import settle as settle_reports
from idem.outcomes import Succeeded
from idem.sweeper.expired_keys import prune_keys

ROUNDS = 150
DONE = """
WITH gone AS (DELETE FROM idem.outbox WHERE intent_id = %(i)s),
     done AS (UPDATE idem.intents SET state = 'completed', outcome = 'succeeded', settled_at = now() WHERE id = %(i)s)
UPDATE idem.idempotency_keys
   SET state = 'completed', response_status = 201, response_headers = '{}', response_body = '',
       completed_at = now(), expires_at = now() - interval '1 second'
 WHERE intent_id = %(i)s
"""
RESTS = """
WITH row AS (UPDATE idem.outbox SET status = 'held' WHERE intent_id = %(i)s),
     rested AS (UPDATE idem.intents SET state = 'failed_retryable' WHERE id = %(i)s)
UPDATE idem.idempotency_keys SET state = 'failed_retryable', expires_at = now() - interval '1 second'
 WHERE intent_id = %(i)s
"""


def succeeded(row: Any, known: Catalogue) -> Report:
    """What the holder of this claim saw."""
    terms, outcome = known.require("pay.keyed"), Succeeded("pay_1", "succeeded")
    return Report(row, outcome, Seen(201), terms, terms.operation.answer(outcome, str(row.intent_id)))


async def read(connection: AsyncConnection[Any], rows: Any, intent: Any) -> Any:
    (found,) = await read_locked(connection, [(await rows.row(intent))["id"]])
    return found.row


async def test_a_report_against_the_sweep_ends_each_claim_once(rows: Any) -> None:
    """IB-014: one end of a claim is written, by whoever was first; a report that is late settles as a proof."""
    ends: Counter[str] = Counter()
    intents = await rows.claimed(ROUNDS, left=-1)
    async with rows.database.connection() as worker, rows.database.connection() as sweeper:
        for intent in intents:
            await rows.execute(
                "UPDATE idem.outbox SET claimed_until = now() + interval '1 hour'"
                " WHERE intent_id <> %(i)s AND status = 'claimed'", i=intent,
            )  # fmt: skip
            await rows.execute("UPDATE idem.outbox SET claimed_until = now() WHERE intent_id = %(i)s", i=intent)
            report = succeeded(await read(worker, rows, intent), rows.known)
            barrier = asyncio.Barrier(2)

            async def reports(
                barrier: asyncio.Barrier = barrier, report: Report = report, connection: Any = worker
            ) -> Any:
                await barrier.wait()
                return await settle_reports(connection, [report])

            async def sweeps(barrier: asyncio.Barrier = barrier, connection: Any = sweeper) -> Any:
                await barrier.wait()
                return await sweep_expired(connection, rows.known, batch=10)

            fates, swept = await asyncio.gather(reports(), sweeps())
            kinds = await rows.kinds(intent)
            assert kinds.count("report") + kinds.count("swept") == 1, kinds
            assert (len(swept) == 1) == ("swept" in kinds)
            assert (fates[report.row.id] == "late_proof") == ("swept" in kinds)
            ends[kinds[1]] += 1
    assert await rows.states() == {"completed": ROUNDS}
    assert await rows.statuses() == {}
    assert await rows.value("SELECT count(*) FROM idem.dead_letters") == 0
    assert sum(ends.values()) == ROUNDS


async def test_a_sweeper_that_stood_still_after_its_look_changes_nothing(rows: Any, monkeypatch: Any) -> None:
    """IB-009: the worker completes between the sweeper's look and its lock, and between its decision and its write."""
    (intent,) = await rows.claimed()
    looked, go_on = asyncio.Event(), asyncio.Event()
    change = change_pages._change

    async def stands_still(*arguments: Any) -> Any:
        looked.set()
        await go_on.wait()
        return await change(*arguments)

    monkeypatch.setattr(change_pages, "_change", stands_still)
    async with rows.database.connection() as worker, rows.database.connection() as other:
        row = await read(worker, rows, intent)
        sweeping = asyncio.create_task(sweep_expired(other, rows.known, batch=10))
        await looked.wait()
        assert set((await settle_reports(worker, [succeeded(row, rows.known)])).values()) == {"settled"}
        history = await rows.kinds(intent)
        go_on.set()
        assert await sweeping == []
        assert await gate.write(other, [decide.swept(row, (), rows.known.require("pay.keyed"))]) == set()
    assert (await rows.key(intent))["state"] == "completed"
    assert await rows.kinds(intent) == history


async def test_two_sweepers_at_once_sweep_each_row_once(rows: Any) -> None:
    """IB-051: a thousand claims, no deadlock, each ended once."""
    await rows.claimed(1000)
    sweepers = [rows.sweeper(batch=50) for _ in range(2)]
    results = await asyncio.gather(*(s.run_once() for s in sweepers))
    assert sum(r.swept for r in results) == 1000
    assert await rows.statuses() == {"unknown": 1000}
    once = "SELECT count(*) AS n FROM idem.evidence WHERE kind = 'swept' GROUP BY outbox_id HAVING count(*) > 1"
    assert await rows.all(once) == []


KILLED = """
import asyncio, sys
from fix_settings import with_constants
from fix_spine import catalogue
from idem.outbox.database.pool import Database
from idem.outbox.settle import change_pages
from idem.outbox.config.settings import SweeperSettings
from idem.sweeper.daemon import Sweeper

batches = 0
write = change_pages.write

async def dies_in_the_second_batch(connection, changes):
    global batches
    batches += 1
    written = await write(connection, changes)
    if batches == 2:
        print("in the middle", file=sys.stderr, flush=True)
        await asyncio.sleep(60)
    return written

async def main():
    change_pages.write = dies_in_the_second_batch
    database = Database(sys.argv[1], name="killed")
    await database.open()
    await Sweeper(database, catalogue("http://127.0.0.1:9"), with_constants(SweeperSettings(), batch=20)).run_once()

asyncio.run(main())
"""


async def test_a_sweeper_that_is_killed_in_a_pass_leaves_the_rest_to_another(rows: Any, db_url: str) -> None:
    """IB-019: what it had committed stays, what it held is free as soon as the server sees that it is gone."""
    await rows.claimed(100)
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{KILLED}", db_url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert await asyncio.to_thread(process.stderr.readline) == "in the middle\n"
        assert await rows.statuses() == {"claimed": 80, "unknown": 20}
        other = rows.sweeper(batch=20)
        assert (await other.run_once()).swept == 60
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    swept = 0
    for _ in range(100):
        swept += (await other.run_once()).swept
        if swept == 20:
            break
        await asyncio.sleep(0.1)
    assert await rows.statuses() == {"unknown": 100}
    assert await rows.value("SELECT count(*) FROM idem.evidence WHERE kind = 'swept'") == 100


async def test_three_pruners_at_once(rows: Any) -> None:
    """IB-051: keys at rest, settled keys and tombstones; no deadlock, each handled once."""
    await rows.completed(2000, key="settled")
    await rows.held(1000, key="at rest")
    tombstones = await rows.completed(1000, key="tombstone")
    await rows.execute(
        "UPDATE idem.idempotency_keys SET state = 'expired', response_status = NULL, response_headers = NULL,"
        " response_body = NULL WHERE intent_id = ANY (%(i)s)", i=tombstones,
    )  # fmt: skip
    pruners = [rows.sweeper(batch=100) for _ in range(3)]
    results = await asyncio.gather(*(p.run_once() for p in pruners))
    assert (sum(r.expired for r in results), sum(r.deleted for r in results)) == (3000, 1000)
    assert await rows.states() == {"expired": 3000}
    kinds = await rows.all("SELECT kind, count(*) AS n FROM idem.evidence GROUP BY kind")
    assert {row["kind"]: row["n"] for row in kinds} == {"accepted": 4000, "expired": 3000, "deleted": 1000}


@pytest.fixture
def accept(rows: Any, db_url: str) -> Callable[[str], Any]:
    """Accepts a key in a thread of its own."""
    spine = Spine(rows.database, Any, rows.known, Acceptor(rows.known.operations, rows.known.providers), db_url)
    return lambda key: asyncio.to_thread(spine.accept, key, 1)


async def test_a_key_that_is_accepted_while_its_tombstone_goes(rows: Any, accept: Any) -> None:
    """IB-137, hazard 19: two callers at once are told `expired`, or one of them is the new operation; none fails."""
    seen: Counter[str] = Counter()
    for round_ in range(25):
        key = f"k{round_}"
        first = await accept(key)
        await rows.execute(DONE, i=first.intent_id)
        async with rows.database.connection() as connection:
            assert await prune_keys(connection, batch=10, tombstone_ttl=0) == {
                "expired": 1,
                "deleted": 0,
                "abandoned": 0,
            }
            pruning = prune_keys(connection, batch=10, tombstone_ttl=0)
            deleted, *decisions = await asyncio.gather(pruning, accept(key), accept(key))
        assert deleted == {"expired": 0, "deleted": 1, "abandoned": 0}
        names = sorted(type(d).__name__ for d in decisions)
        assert set(names) <= {"Expired", "Accepted", "InProgress"}, names
        assert names.count("Accepted") <= 1
        if Accepted not in map(type, decisions):
            assert {type(d) for d in decisions} == {Expired}
            assert isinstance(await accept(key), Accepted)
        assert await rows.value("SELECT count(*) FROM idem.idempotency_keys WHERE idempotency_key = %(k)s", k=key) == 1
        seen.update(names)
    assert sum(seen.values()) == 50


async def test_a_client_that_retries_while_its_key_expires(rows: Any, accept: Any) -> None:
    """The key goes back to work or expires: never a row at work whose key is gone."""
    for round_ in range(25):
        key = f"k{round_}"
        intent = (await accept(key)).intent_id
        await rows.execute(RESTS, i=intent)
        async with rows.database.connection() as connection:
            pruned, decision = await asyncio.gather(prune_keys(connection, batch=10, tombstone_ttl=60), accept(key))
        state, status = (await rows.key(intent))["state"], (await rows.row(intent))["status"]
        if pruned["expired"]:
            assert (state, status) == ("expired", "held")
            assert isinstance(decision, Expired | InProgress)
        else:
            assert (state, status) == ("in_progress", "pending")
            assert isinstance(decision, Retrying)


async def test_a_tombstone_that_is_being_deleted_still_answers(rows: Any, db_url: str, accept: Any) -> None:
    """Hazards 19, 23: nobody waits for the sweeper's transaction."""
    first = await accept("k")
    await rows.execute(DONE, i=first.intent_id)
    await rows.sweep()
    with psycopg.connect(db_url) as deleting:
        deleting.execute("DELETE FROM idem.idempotency_keys")
        decision = await asyncio.wait_for(accept("k"), 10)
        assert isinstance(decision, Expired)
    assert isinstance(await accept("k"), Accepted)
