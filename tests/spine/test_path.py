"""The whole path of one intent, step by step, on a real PostgreSQL against a real bank."""

import json

import pytest
from fix_spine import Spine

from idem.decisions import Accepted, InProgress, Mismatch, Replay, Retrying, Unknown

BOTH = pytest.mark.parametrize("kind", ["keyed", "keyless"])


@BOTH
async def test_a_payment_is_made_once_and_its_answer_is_replayed(spine: Spine, kind: str) -> None:
    intent = spine.accepted(operation=f"pay.{kind}")
    assert isinstance(spine.accept(operation=f"pay.{kind}"), InProgress)
    done = await spine.work()
    assert (done.claimed, dict(done.fates)) == (1, {"settled": 1})
    replay = spine.accept(operation=f"pay.{kind}")
    assert isinstance(replay, Replay) and replay.answer.status == 201
    assert json.loads(replay.answer.body)["intent"] == str(intent)
    assert isinstance(spine.accept(amount=7, operation=f"pay.{kind}"), Mismatch)
    assert spine.effects() == 1
    assert await spine.row_if_any(intent) is None
    assert await spine.evidence(intent) == [("accept", "accepted", None), ("worker", "report", "succeeded")]


@BOTH
async def test_a_lost_answer_becomes_unknown_and_is_found(spine: Spine, kind: str) -> None:
    intent = await spine.sent(operation=f"pay.{kind}", faults=["act_then_drop"])
    await spine.expect(intent, status="unknown")
    assert isinstance(spine.accept(operation=f"pay.{kind}"), Unknown)
    done = await spine.reconcile(after=10)
    assert dict(done.settled) == {("replay" if kind == "keyed" else "lookup") + ":succeeded": 1}
    assert isinstance(spine.accept(operation=f"pay.{kind}"), Replay)
    assert spine.effects() == 1


async def test_absent_is_believed_only_after_the_quiet_time_then_redriven(spine: Spine) -> None:
    """Hazards 1, 2: looks that agree are not enough before the flight limit and the horizon have passed."""
    intent = await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])
    for _ in range(3):
        await spine.reconcile(after=6, hasten=True)
        row = await spine.row(intent)
        assert row["status"] == "unknown"
    assert row["absences"] == 3
    done = await spine.reconcile(after=100, hasten=True)
    assert dict(done.settled) == {"lookup:absent": 1}
    assert (await spine.key(intent))["state"] == "failed_retryable"
    assert (await spine.reconcile(after=10)).redriven == 1
    await spine.work()
    assert isinstance(spine.accept(operation="pay.keyless"), Replay)
    await spine.expect(intent, effects=1, letters=[])


async def test_a_clients_retry_takes_a_resting_key_up_again(spine: Spine) -> None:
    intent = await spine.sent(operation="pay.keyless", faults=["drop_before_acting"])
    await spine.reconcile(after=200, hasten=True)
    await spine.reconcile(after=200, hasten=True)
    assert (await spine.key(intent))["state"] == "failed_retryable"
    assert spine.accept(operation="pay.keyless") == Retrying(intent)
    assert isinstance(spine.accept(operation="pay.keyless"), InProgress)
    await spine.work()
    assert spine.effects() == 1


async def test_a_decline_is_an_answer(spine: Spine) -> None:
    await spine.sent(faults=["decline"])
    replay = spine.accept()
    assert isinstance(replay, Replay) and replay.answer.status == 402


async def test_pending_is_awaited_and_never_sent_again(spine: Spine) -> None:
    intent = await spine.sent(faults=["pending"])
    await spine.expect(intent, status="awaiting")
    assert isinstance(spine.accept(), InProgress)
    spine.bank.shift_clock(60)
    await spine.reconcile(hasten=True)
    assert isinstance(spine.accept(), Replay)
    assert spine.effects() == 1
    assert len(spine.bank.log.sends()) == 1


async def test_an_unfit_request_is_held_for_an_operator(spine: Spine) -> None:
    spine_intent = await spine.sent(amount=-5)
    row = await spine.row(spine_intent)
    assert (row["status"], await spine.letters(spine_intent)) == ("held", ["rejected"])
    assert type(spine.accept(amount=-5)).__name__ == "NeedsOperator"


async def test_what_never_left_goes_back_to_the_queue(spine: Spine) -> None:
    port = spine.bank.port
    intent = spine.accepted()
    await spine.bank.__aexit__(None, None, None)
    await spine.work()
    await spine.expect(intent, status="pending", failures=1, first_sent_at=None)
    assert port
    assert isinstance(spine.accept(), InProgress)


def test_an_accepted_intent_is_one_whole(spine: Spine) -> None:
    assert isinstance(spine.accept(), Accepted)
