"""An operator against everybody else, on two real connections: one winner each, and the loser hears why."""

import asyncio
import re

import pytest
from fix_desk import Desk
from fix_racing import race
from fix_sql import engine_of
from fix_steps import claim, prove

from idem.decisions import InProgress, Retrying
from idem.errors import OperatorRefused
from idem.outbox.operator.actions import Done
from idem.outcomes import Succeeded

ROUNDS = 12


async def test_either_the_claim_or_the_cancellation_has_the_row(desk: Desk) -> None:
    won = {"claim": 0, "cancel": 0}
    for number in range(ROUNDS):
        intent = await desk.pending(f"k{number}")
        claimed, cancelled = await race(claim(desk.spine, limit=10), desk.act("cancel", intent))
        if isinstance(cancelled, Done):
            won["cancel"] += 1
            assert claimed == []
            assert await desk.state(intent) == ("completed", None)
        else:
            won["claim"] += 1
            assert len(claimed) == 1
            assert "a call is in progress" in str(cancelled)
            assert await desk.state(intent) == ("in_progress", "claimed")
    assert sum(won.values()) == ROUNDS


async def test_of_two_cancellations_one_is_told_that_it_is_done(desk: Desk) -> None:
    for number in range(ROUNDS):
        intent = await desk.pending(f"k{number}")
        results = await race(desk.act("cancel", intent), desk.act("cancel", intent))
        assert sorted(type(each).__name__ for each in results) == ["Done", "OperatorRefused"]
        assert await desk.spine.events(intent) == ["completed"]


async def test_either_the_clients_retry_or_the_redrive_takes_it_up_again(desk: Desk) -> None:
    for number in range(ROUNDS):
        intent = await desk.unknown(f"k{number}")
        await desk.act("resolve_failed", intent)
        retried, redriven = await race(asyncio.to_thread(desk.spine.accept, f"k{number}"), desk.act("redrive", intent))
        kinds = [kind for _, kind, _ in await desk.spine.evidence(intent) if kind in ("retried", "redriven")]
        if isinstance(redriven, Done):
            assert isinstance(retried, InProgress)
            assert kinds == ["redriven"]
        else:
            assert isinstance(retried, Retrying)
            assert kinds == ["retried"]
        assert await desk.state(intent) == ("in_progress", "pending")
        await desk.spine.all("UPDATE idem.outbox SET available_at = now() + interval '1 d' RETURNING 1")


async def test_a_redrive_that_waited_for_the_clients_retry_hears_that_it_moved(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_failed", intent)
    engine = engine_of(desk.spine.url)
    with engine.connect() as connection, connection.begin():
        assert isinstance(desk.spine.acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 100}), Retrying)
        waiting = asyncio.create_task(desk.act("redrive", intent))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    with pytest.raises(OperatorRefused, match="changed after"):
        await waiting


async def test_a_clients_retry_does_not_wait_for_an_operator(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_failed", intent)
    async with desk.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.outbox WHERE intent_id = %s FOR UPDATE", [intent])
        decision = await asyncio.wait_for(asyncio.to_thread(desk.spine.accept, "k"), 5)
    assert isinstance(decision, InProgress)


async def test_an_operator_does_not_wait_for_ever_for_a_row_that_somebody_holds(desk: Desk) -> None:
    intent = await desk.held("k")
    async with desk.spine.database.connection() as holder, holder.transaction():
        await holder.execute("SELECT FROM idem.outbox WHERE intent_id = %s FOR UPDATE", [intent])
        result = await desk.cli("intents", "cancel", intent, "--reason", "r", "--yes")
    assert result.code == 1
    assert "is locked by another transaction" in result.err
    assert await desk.state(intent) == ("failed_retryable", "held")


async def test_a_webhook_is_never_lost_to_an_operators_failure(desk: Desk) -> None:
    """Whoever comes first: the proof ends it, and the operator's word is corrected or refused."""
    for number in range(ROUNDS):
        intent = await desk.unknown(f"k{number}")
        row = await desk.spine.row(intent)
        proved, failed = await race(
            prove(desk.spine, row["id"], Succeeded("pay_7", "succeeded"), wait=False),
            desk.act("resolve_failed", intent),
        )
        if proved == "stored":  # the operator had the row's lock, and the proof waits for the reconciler
            await desk.spine.reconcile()
        assert isinstance(failed, Done) or proved == "applied" or re.search("proof|new evidence", str(failed))
        assert await desk.state(intent) == ("completed", None)
        assert (await desk.spine.key(intent))["response_status"] == 201


async def test_two_operators_who_disagree_leave_one_decision(desk: Desk) -> None:
    for number in range(ROUNDS):
        intent = await desk.unknown(f"k{number}")
        completed, failed = await race(desk.act("resolve_completed", intent), desk.act("resolve_failed", intent))
        assert isinstance(completed, Done) != isinstance(failed, Done)
        loser = failed if isinstance(completed, Done) else completed
        assert "changed after" in str(loser) or "already" in str(loser) or "while you were deciding" in str(loser)


async def test_a_redrive_against_a_sweep_of_a_live_lease_sends_nothing_twice(desk: Desk) -> None:
    """Calls in flight, and an operator who redrives: the lease is live, so nothing is sent again (IB-005)."""
    intents = [await desk.live(f"k{number}") for number in range(5)]
    results = [await race(desk.act("redrive", intent, know_it_did_not_happen=True)) for intent in intents]
    assert all("a call is in progress" in str(each[0]) for each in results)
    await desk.spine.work()
    assert desk.spine.effects() == 0
