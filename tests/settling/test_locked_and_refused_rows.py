"""Rows that nobody would ever hear of again, and one row that holds up all the others."""

import asyncio
import contextlib
import dataclasses
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from fix_spine import Spine
from fix_steps import claim_one, prove, report, working
from fix_waiting import stopping, until

from idem import Answer
from idem.decisions import Replay
from idem.outbox.database.pool import Database, Timeouts
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import proofs
from idem.outbox.settle import results as reports
from idem.outbox.settle.settler import Settler
from idem.outbox.worker.claim import Claim
from idem.outcomes import Ambiguous, NotExecuted, Pending, Succeeded
from idem.reconciler import stored as stored_work


async def to_rest(spine: Spine, intent: UUID) -> Claim:
    """A claim that was swept, then believed absent: at rest, while its worker still has something to say."""
    claimed = await claim_one(spine, "keyed")
    await spine.sweep(after=100_000)
    await spine.reconcile(after=4000, hasten=True, times=4)
    await spine.expect(intent, status="held")
    return claimed


def retries_itself(spine: Spine) -> None:
    """Our own redrives are off: only the client takes a row at rest up again."""
    spine.know(redrive="none", retry="client", give_up_after=10**7, key_ttl=10**7)


@contextlib.asynccontextmanager
async def a_clients_long_transaction(spine: Spine, row: UUID) -> Any:
    """What the client's retry of a key at rest holds until its caller commits."""
    async with await psycopg.AsyncConnection.connect(spine.url) as other:
        await other.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", (row,))
        yield
        await other.rollback()


@contextlib.asynccontextmanager
async def impatient(spine: Spine) -> Any:
    """A daemon's connection with a short lock timeout."""
    async with stopping(
        Database(spine.url, name="idem-test-impatient", timeouts=Timeouts(lock=0.3, connect=10))
    ) as own:
        await own.open()
        async with own.connection() as connection:
            yield connection


async def test_hazard_22_a_late_result_does_not_wait_for_a_clients_transaction(spine: Spine) -> None:
    """It is stored, which needs no lock; the other results of the batch are settled."""
    retries_itself(spine)
    intent = spine.accepted("late")
    late = await to_rest(spine, intent)
    other = spine.accepted("other")
    claimed = await claim_one(spine, "keyed")
    results = [report(spine, late, Succeeded("pay_late")), report(spine, claimed, Succeeded("pay_other"))]
    async with a_clients_long_transaction(spine, late.row.id), impatient(spine) as connection:
        fates = await reports.settle(connection, results)
    assert fates[claimed.row.id] == "settled"
    assert (await spine.key(other))["state"] == "completed"
    assert len(await spine.all("SELECT FROM idem.proofs")) == 1
    assert (await spine.work()).claimed == 0
    await spine.reconcile()
    assert isinstance(spine.accept("late"), Replay)
    assert spine.effects() == 0


@pytest.mark.parametrize("outcome", [Ambiguous(), NotExecuted("transport")])
async def test_hazard_22_a_late_report_that_proves_nothing_does_not_wait_either(spine: Spine, outcome: Any) -> None:
    retries_itself(spine)
    intent = spine.accepted("late")
    late = await to_rest(spine, intent)
    async with a_clients_long_transaction(spine, late.row.id), impatient(spine) as connection:
        fates = await reports.settle(connection, [report(spine, late, outcome)])
    assert fates[late.row.id] == "late"
    assert ("worker", "late_result") in [(source, kind) for source, kind, _ in await spine.evidence(intent)]


async def test_hazard_53_a_proof_about_a_locked_row_is_never_lost(spine: Spine) -> None:
    """A look-up's proof that waits for a lock until its patience ends is stored; the claim then refuses the row."""
    retries_itself(spine)
    intent = spine.accepted()
    claimed = await to_rest(spine, intent)
    proof = StoredProof(uuid4(), "reconciler", Succeeded("pay_1"), Answer(201, b"{}"))
    terms = spine.catalogue.require("pay.keyed")
    async with a_clients_long_transaction(spine, claimed.row.id), impatient(spine) as connection:
        became = await proofs.apply(connection, claimed.row.id, proof, Evidence("reconciler", "lookup"), terms)
    assert became == "stored"
    assert (await spine.work()).claimed == 0
    await spine.reconcile()
    assert isinstance(spine.accept(), Replay)


@pytest.mark.parametrize("way", ["a batch", "the worker"])
async def test_two_reports_of_one_row_in_a_batch_are_two_ends(spine: Spine, way: str) -> None:
    """After an outage the results of two claims of a row may wait side by side: each has its own fate and evidence."""
    intent = spine.accepted(operation="pay.keyless")
    first = await claim_one(spine, "keyless")
    await spine.sweep(after=1000)
    await spine.advance(10)
    second = await claim_one(spine, "keyless")
    both = [
        report(spine, first, Succeeded("pay_1"), "keyless"),
        report(spine, second, NotExecuted("transport"), "keyless"),
    ]
    if way == "a batch":
        await spine.run(reports.settle, both)
    else:
        settler = Settler(spine.database)
        settling = asyncio.create_task(settler.run())
        for each in both:
            settler.put(each)
        await asyncio.wait_for(settler.drain(), 30)
        settling.cancel()
        assert settler.fates == {"late_proof": 1, "folded": 1}
    await spine.reconcile()
    assert (await spine.key(intent))["state"] == "completed"
    assert (await spine.work()).claimed == 0
    assert spine.effects() == 0


@pytest.mark.parametrize("asked", [True, False], ids=["no question is answered", "none can be asked"])
async def test_hazard_14_an_awaited_row_that_cannot_be_asked_about_tells_somebody(spine: Spine, asked: bool) -> None:
    """The provider has accepted it and then answers no question for longer than `pending_limit`."""
    intent = spine.accepted()
    await prove(spine, (await spine.row(intent))["id"], Pending("pay_1"))
    if asked:
        spine.bank.script({"method": "GET"}, ["503"] * 40)
    else:
        spine.change("keyed", lookups=())
    await spine.reconcile(after=40000, hasten=True, times=3)
    assert await spine.letters(intent) == ["pending_too_long"]


async def test_redrives_that_this_process_cannot_make_hide_no_others(spine: Spine) -> None:
    """IB-022: held rows of an operation that is not configured here stand first in the order of their due time."""
    spine.know("pay.gone")
    intents = [spine.accepted(f"k{n}", operation="pay.gone") for n in range(3)] + [spine.accepted("ours")]
    for n, intent in enumerate(intents):
        await spine.execute(
            "UPDATE idem.outbox SET status = 'held', redrive_at = now() - interval '1 h' + %s * interval '1 s'"
            " WHERE intent_id = %s", (n, intent),
        )  # fmt: skip
    for table in ("intents", "idempotency_keys"):
        await spine.execute(f"UPDATE idem.{table} SET state = 'failed_retryable'")
    here = {name: known for name, known in spine.catalogue.operations.items() if name != "pay.gone"}
    spine.catalogue = dataclasses.replace(spine.catalogue, operations=here)
    assert await spine.run(stored_work.redrive, spine.catalogue, limit=2) == 1
    assert (await spine.row(intents[-1]))["status"] == "pending"


async def test_a_database_that_refuses_writes_for_a_while_is_waited_out(spine: Spine) -> None:
    """Full disks and fail-overs make databases read-only. The worker lives on, and what it saw is not dropped."""
    intent = spine.accepted()
    acting, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> None:
        acting.set()
        await go_on.wait()

    spine.bank.when("acted", None, wait)
    name = await spine.value("SELECT current_database()")
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idem-test-daemon'"
        " AND datname = current_database()"
    )
    async with working(spine, slots=2, poll=0.05), spine.database.connection() as connection:
        await asyncio.wait_for(acting.wait(), 20)
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await connection.execute(end)
        go_on.set()
        await asyncio.sleep(2)
        await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await connection.execute(end)
        await until(lambda: spine.all("SELECT FROM idem.idempotency_keys WHERE state <> 'in_progress'"))
    await spine.expect(intent, key="completed", effects=1)


async def test_a_claim_that_the_database_refuses_does_not_end_the_worker(spine: Spine) -> None:
    """A right that is missing for a moment (a migration, a restored dump): other lanes go on, and so does this one."""
    async with working(spine, slots=2, poll=0.05):
        await asyncio.sleep(0.5)
        await spine.execute("ALTER TABLE idem.lanes RENAME TO lanes_elsewhere")
        await asyncio.sleep(1)
        await spine.execute("ALTER TABLE idem.lanes_elsewhere RENAME TO lanes")
        spine.accepted()
        await until(lambda: spine.all("SELECT FROM idem.idempotency_keys WHERE state = 'completed'"))
