"""Races with real connections and a barrier: one winner each, and the loser's answer is the right one."""

import asyncio
import dataclasses
from types import SimpleNamespace
from uuid import UUID

import pytest
from fix_spine import Spine
from fix_steps import claim, claim_due, claim_one, prove, report, settle

from idem.decisions import InProgress, Retrying
from idem.outbox.domain.outcomes import Seen
from idem.outbox.settle import decide
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.settle.proofs import change_one
from idem.outbox.worker.in_flight import InFlight
from idem.outcomes import Absent, Ambiguous, Refused, Succeeded
from idem.reconciler import asker, settling, stored

ROUNDS = 25


async def test_two_workers_that_claim_never_share_a_row(spine: Spine) -> None:
    """IB-001, IB-002."""
    for n in range(60):
        spine.accepted(f"k{n}")

    async def grab() -> list[UUID]:
        return [row.row.id for row in await claim(spine, limit=20)]

    got = await asyncio.gather(*(grab() for _ in range(6)))
    flat = [row for rows in got for row in rows]
    assert len(flat) == len(set(flat))
    assert len(flat) + sum([len(await grab()) for _ in range(3)]) == 60


async def test_a_stored_proof_beats_the_claim(spine: Spine) -> None:
    """Hazard 53: a proof that is in the database before the claim is never overtaken by a call."""
    intent = spine.accepted()
    row = await spine.row(intent)
    async with spine.database.connection() as holder, holder.transaction():
        await holder.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", (row["id"],))
        assert await prove(spine, row["id"], Succeeded("pay_1"), wait=False) == "stored"
    assert (await spine.work()).claimed == 0
    assert (await spine.reconcile()).applied == 1
    await spine.expect(intent, key="completed", effects=0)


async def test_a_proof_and_a_claim_at_once(spine: Spine) -> None:
    """Either the claim comes first and its end folds the proof, or the proof is applied and nothing is claimed."""
    seen = set()
    for n in range(ROUNDS):
        intent = spine.accepted(f"k{n}")
        row = await spine.row(intent)
        claimed, applied = await asyncio.gather(claim(spine), prove(spine, row["id"], Succeeded("pay_1")))
        if claimed:
            assert applied == "stored"
            assert await settle(spine, report(spine, claimed[0], Ambiguous())) == {row["id"]: "folded"}
        else:
            assert applied == "applied"
        assert (await spine.key(intent))["state"] == "completed"
        assert await spine.all("SELECT FROM idem.proofs") == []
        seen.add(applied)
    assert seen


async def test_a_worker_that_comes_too_late_brings_a_proof(spine: Spine) -> None:
    """Hazard 3 (b): the claim was swept and the verdict is in; the late result completes the key all the same."""
    intent = spine.accepted()
    claimed = await claim_one(spine)
    await sweep(spine)
    assert (await spine.key(intent))["state"] == "unknown"
    fates = await settle(spine, report(spine, claimed, Succeeded("pay_9")))
    assert set(fates.values()) == {"late_proof"}
    assert (await spine.key(intent))["state"] == "completed"
    assert await spine.row_if_any(intent) is None


async def test_a_late_worker_against_the_reconciler(spine: Spine) -> None:
    """Both found the same payment: one transition, the other agrees; nothing contradicts."""
    for n in range(ROUNDS):
        intent = spine.accepted(f"k{n}")
        claimed = await claim_one(spine)
        await sweep(spine)
        row = await spine.row(intent)
        fates, applied = await asyncio.gather(
            settle(spine, report(spine, claimed, Succeeded("pay_1"))),
            prove(spine, row["id"], Succeeded("pay_1"), source="reconciler"),
        )
        assert sorted([*fates.values(), applied]) in (["agrees", "late_proof"], ["applied", "late_proof"])
        await spine.expect(intent, key="completed", letters=[])
        ends = await spine.all("SELECT FROM idem.evidence WHERE intent_id = %(i)s AND to_state = 'completed'", i=intent)
        assert len(ends) == 1


async def test_contradicting_late_proofs_open_a_dead_letter_and_change_nothing(spine: Spine) -> None:
    """Hazard 17, P4."""
    intent = spine.accepted()
    claimed = await claim_one(spine)
    assert await settle(spine, report(spine, claimed, Succeeded("pay_1"))) == {claimed.row.id: "settled"}
    before = await spine.key(intent)
    assert await prove(spine, claimed.row.id, Succeeded("pay_2")) == "conflict"
    assert await spine.letters(intent) == ["possible_duplicate"]
    assert await prove(spine, claimed.row.id, Succeeded("pay_1")) == "agrees"
    assert await spine.key(intent) == before


async def test_outcome_and_stored_proof_that_disagree_settle_nothing(spine: Spine) -> None:
    """Hazard 3 (d): the early webhook said that the money moved, the worker's attempt was refused."""
    intent = spine.accepted()
    claimed = await claim_one(spine)
    assert await prove(spine, claimed.row.id, Succeeded("pay_1")) == "stored"
    assert await settle(spine, report(spine, claimed, Refused("pay_2"))) == {claimed.row.id: "folded"}
    await spine.expect(intent, key="unknown", letters=["conflict"])


async def test_two_reconcilers_take_a_row_once(spine: Spine) -> None:
    """Hazard 9."""
    for n in range(8):
        spine.accepted(f"k{n}", operation="pay.keyless")
    await spine.work(faults=["act_then_drop"] * 8)
    await spine.advance(10)
    first, second = await asyncio.gather(claim_due(spine, "keyless"), claim_due(spine, "keyless"))
    ids = [t.row.id for t in (*first, *second)]
    assert len(ids) == len(set(ids)) == 8
    assert await claim_due(spine, "keyless") == []
    await spine.advance(40)
    again = await claim_due(spine, "keyless")
    assert len(again) == 8, "takes whose lease ran out are simply taken by the next"
    expired = await spine.all("SELECT FROM idem.evidence WHERE kind = 'claim_expired'")
    assert len(expired) == 8


async def test_poll_and_webhook_at_once(spine: Spine) -> None:
    """IB-095, IB-114: one transition, and no call to the provider's create endpoint."""
    for n in range(ROUNDS):
        intent = await spine.sent(f"k{n}", operation="pay.keyless", faults=["act_then_drop"])
        row = await spine.row(intent)
        payment = spine.bank.log.payments()[-1].id
        await spine.advance(10)
        _, applied = await asyncio.gather(spine.reconcile(), prove(spine, row["id"], Succeeded(payment)))
        assert applied in ("applied", "agrees")
        await spine.expect(intent, key="completed", letters=[])
        ends = await spine.all("SELECT FROM idem.evidence WHERE intent_id = %(i)s AND to_state = 'completed'", i=intent)
        assert len(ends) == 1
    assert len(spine.bank.log.sends()) == ROUNDS


async def test_the_clients_retry_against_the_redrive(spine: Spine) -> None:
    """One takes the row up again; the other finds it taken."""
    winners = set()
    for n in range(ROUNDS):
        intent = spine.accepted(f"k{n}", operation="pay.keyless")
        async with spine.database.connection() as connection:
            await connection.execute("UPDATE idem.outbox SET status = 'held', redrive_at = statement_timestamp()"
                                     " WHERE intent_id = %s", (intent,))  # fmt: skip
            await connection.execute(
                "UPDATE idem.idempotency_keys SET state = 'failed_retryable' WHERE intent_id = %s", (intent,)
            )
            await connection.execute("UPDATE idem.intents SET state = 'failed_retryable' WHERE id = %s", (intent,))

        async def redrive() -> int:
            return await spine.run(stored.redrive, spine.catalogue, limit=10)

        decision, redriven = await asyncio.gather(
            asyncio.to_thread(spine.accept, f"k{n}", operation="pay.keyless"), redrive()
        )
        await spine.expect(intent, status="pending", redrives=redriven)
        assert isinstance(decision, InProgress if redriven else Retrying), (decision, redriven)
        winners.add(redriven)
    assert winners <= {0, 1}


async def test_a_verdict_never_beats_a_proof_that_is_stored(spine: Spine) -> None:
    """Hazard 3 (e): absent often enough, but a proof came in while the reconciler was asking."""
    intent = await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])
    await spine.reconcile(after=300)
    await spine.advance(300)
    (taken,) = await claim_due(spine, "keyless")
    async with spine.database.connection() as holder, holder.transaction():
        await holder.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", (taken.row.id,))
        assert await prove(spine, taken.row.id, Succeeded("pay_1"), wait=False) == "stored"

    found = asker.Answered("lookup", Absent(), Seen(200), sent=False)
    await settling.settle(spine.database, Renderer(), taken, found, spine.catalogue.require("pay.keyless"))
    assert (await spine.key(intent))["state"] == "completed"


async def sweep(spine: Spine) -> None:
    """Let every lease run out, and sweep."""
    await spine.advance(31)
    for row in await spine.all("SELECT id FROM idem.outbox WHERE status = 'claimed'"):
        await spine.run(
            change_one,
            row["id"],
            lambda found: decide.swept(found.row, found.stored, spine.catalogue.require(found.row.operation)),
        )


def test_a_claim_in_flight_starts_or_is_given_back() -> None:
    """Hazard 32: one compare-and-set, so that only one of them acts."""
    for first, second in (("start", "give_back"), ("give_back", "start")):
        ours = SimpleNamespace(is_now=lambda _: True)
        flight = InFlight(SimpleNamespace(sent_as=1), None, ours)  # type: ignore[arg-type]
        assert getattr(flight, first)() is True
        assert getattr(flight, second)() is False
        assert getattr(flight, first)() is (first == "start")


@pytest.mark.parametrize("reference", ["bad\x00reference", "lone\ud800surrogate"])
async def test_hazard_20_one_bad_row_does_not_stop_a_batch(spine: Spine, reference: str) -> None:
    for n in range(5):
        spine.accepted(f"k{n}")
    batch = [report(spine, row, Succeeded(f"pay_{n}")) for n, row in enumerate(await claim(spine, limit=5))]
    bad = Succeeded(reference, fields={"text": "\x00", "number": float("nan"), "id": 9223372036854775807})
    batch[2] = dataclasses.replace(batch[2], outcome=bad, seen=Seen(201, note="\ud800\x00"))
    assert set((await settle(spine, *batch)).values()) == {"settled"}
    states = await spine.all("SELECT DISTINCT state FROM idem.idempotency_keys")
    assert states == [{"state": "completed"}]
    result = await spine.one("SELECT result::text AS r FROM idem.intents WHERE id = %(i)s", i=batch[2].row.intent_id)
    assert "9223372036854775807" in result["r"], "IB-150: digit for digit"


async def test_hazard_21_a_settled_batch_that_is_settled_again(spine: Spine) -> None:
    spine.accepted()
    one = report(spine, await claim_one(spine), Succeeded("pay_1"))
    assert set((await settle(spine, one)).values()) == {"settled"}
    assert set((await settle(spine, one)).values()) == {"already"}
    intent = one.row.intent_id
    assert [e for e in await spine.evidence(intent) if e[0] == "worker"] == [("worker", "report", "succeeded")]
