"""`cancel_by_key` makes "not executed" of what nothing else can decide (hazards 8, 9, 10)."""

import asyncio
from dataclasses import replace

import pytest
from fix_spine import KEYED, Spine
from fix_steps import answered, claim_due_row
from settling.shop import CANCEL, asked, cancelling, cancels, count_lookups, sends, serve, standing

from idem.decisions import Replay
from idem.outcomes import Absent, Succeeded
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank.settings import CancelByKey


async def redriven(spine: Spine) -> None:
    """The redrive that follows a verdict: when nothing sent can act any more, rendered under a new key, and sent."""
    await spine.reconcile(after=200)
    await spine.work()


@pytest.mark.parametrize("fault", ["drop_before_acting", "act_then_drop"])
async def test_what_nobody_can_ask_about_is_cancelled_and_made_anew(spine: Spine, fault: str) -> None:
    """Not before the quiet time has passed; the verdict needs no second look, and the next send a new key."""
    cancelling(spine)
    intent = await spine.sent(faults=[fault])
    assert await spine.letters(intent) == [], "a cancel can settle it: nobody is called"
    await spine.reconcile(after=10)
    assert cancels(spine) == 0
    row = await spine.row(intent)
    assert (row["status"], row["key_burned"], row["attempt"]) == ("unknown", False, 1)
    assert dict((await spine.reconcile(after=KEYED.flight_limit)).settled) == {"cancel:absent": 1}
    row = await spine.row(intent)
    assert (row["status"], row["key_burned"], row["attempt"]) == ("held", True, 2)
    await redriven(spine)
    assert isinstance(spine.accept(), Replay)
    assert cancels(spine) == 1
    assert len(set(sends(spine))) == len(sends(spine)) == 2
    assert standing(spine) == 1
    assert ("reconciler", "cancel", "absent") in await spine.evidence(intent)
    assert await spine.letters(intent) == []


async def test_a_cancel_that_blocks_late_requests_waits_for_nothing(spine: Spine) -> None:
    """The request is still on its way when it is cancelled: it arrives later, and is refused."""
    serve(spine, BankAccount("stones", "stones-token", cancel=CancelByKey(blocks_late_requests=True)))
    cancelling(spine, blocks_late_requests=True, deadline=0.5)
    intent = await spine.sent(faults=["stall_before_acting:3"])
    assert dict((await spine.reconcile(after=7)).settled) == {"cancel:absent": 1}
    row = await spine.row(intent)
    assert row["redrive_at"] >= row["quiet_after"], "a new key protects no more from what was sent under the old one"
    await spine.reconcile()
    await spine.work()
    assert (await spine.row(intent))["generation"] == 1
    await asyncio.sleep(3)
    assert standing(spine) == 0
    await redriven(spine)
    assert isinstance(spine.accept(), Replay)
    assert standing(spine) == 1


async def test_look_ups_come_first_and_a_verdict_of_theirs_needs_no_cancel(spine: Spine) -> None:
    cancelling(spine, lookups=True, lookup=KEYED.lookup)
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.reconcile(after=200, times=2)
    assert cancels(spine) == 0
    assert (await spine.row(intent))["key_burned"] is False
    assert ("reconciler", "lookup", "absent") in await spine.evidence(intent)
    await redriven(spine)
    assert isinstance(spine.accept(), Replay)
    assert len(set(sends(spine))) == 1


async def test_the_last_rung_of_the_schedule_cancels_what_the_lookups_did_not_decide(spine: Spine) -> None:
    """They agree too little: a contract that wants more of them than it has rungs."""
    many = replace(KEYED.lookup, agree=100)
    contract = cancelling(spine, lookups=True, lookup=many)
    intent = await spine.sent(faults=["drop_before_acting"])
    for _ in range(len(contract.schedule) - 1):
        await spine.reconcile(after=5000)
        assert cancels(spine) == 0
    assert dict((await spine.reconcile(after=5000)).settled) == {"cancel:absent": 1}
    assert await spine.letters(intent) == []
    seen = await spine.one("SELECT details FROM idem.evidence WHERE kind = 'cancel'")
    assert [each["how"] for each in seen["details"]["tried"]] == ["lookup"]


async def test_a_cancel_whose_answer_is_lost_is_repeated_before_anything_is_believed(spine: Spine) -> None:
    """It may have voided what a look-up would still show; and no replay meets a key that may be cancelled."""
    cancelling(spine, key=KEYED.key, strategies=("cancel_by_key", "replay"))
    intent = await spine.sent(faults=["act_then_drop"])
    spine.bank.script({"path": "/payments/cancel"}, ["act_then_drop"])
    await spine.reconcile(after=KEYED.flight_limit + 10)
    await spine.expect(intent, status="unknown", key_burned=True, cancel_sent=True, attempt=2, letters=[])
    await spine.reconcile(hasten=True)
    assert cancels(spine) == 1, "what left may still act: it is not due, and nothing else is done"
    assert dict((await spine.reconcile(after=KEYED.flight_limit * 2)).settled) == {"cancel:absent": 1}
    assert (cancels(spine), len(sends(spine))) == (2, 1)
    await redriven(spine)
    assert isinstance(spine.accept(), Replay)
    assert standing(spine) == 1
    assert len(set(sends(spine))) == 2


async def test_a_reconciler_that_dies_with_its_cancel_leaves_the_key_burned(spine: Spine) -> None:
    """The mark is committed before the first byte: whoever takes the row next makes no replay."""
    cancelling(spine, key=KEYED.key, strategies=("cancel_by_key", "replay"))
    intent = await spine.sent(faults=["act_then_drop"])
    gone = asyncio.Event()

    async def die(_: object) -> None:
        gone.set()
        await asyncio.sleep(30)

    spine.bank.when("received", {"path": "/payments/cancel"}, die, times=1)
    await spine.advance(KEYED.flight_limit + 10)
    dying = asyncio.create_task(spine.reconcile())
    await asyncio.wait_for(gone.wait(), 10)
    await spine.expect(intent, key_burned=True, cancel_sent=True, attempt=2)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await spine.reconcile(after=400, times=2)
    assert len(sends(spine)) == 1 or len(set(sends(spine))) == len(sends(spine))
    assert cancels(spine) >= 2


async def test_what_the_answer_of_a_cancel_proves(spine: Spine) -> None:
    """A proof in it is one; its absence is no verdict against a proof that is on record."""
    cancelling(spine)
    for key, look, became in (("shown", Succeeded("pay_1"), "settled"), ("absent", Absent(), "kept")):
        intent = await spine.sent(key, faults=["act_then_drop"])
        if became == "kept":
            await spine.execute("INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%s, 'conflict')", (intent,))
        await spine.advance(200)
        assert await answered(spine, await claim_due_row(spine), look, how="cancel") == became
        assert isinstance(spine.accept(key), Replay) == (became == "settled")
    assert (await spine.row(intent))["status"] == "unknown"


async def test_answers_that_decide_nothing_end_with_a_person(spine: Spine) -> None:
    """The provider refuses the cancel itself, again and again: it uses up the schedule, and the key stays burned."""
    contract = cancelling(spine)
    spine.change("keyed", cancels=CANCEL.model_copy(update={"done": 299}))
    intent = await spine.sent(faults=["act_then_drop"])
    spine.bank.script({"path": "/payments/cancel"}, ["422_before_acting"] * 20)
    for _ in contract.schedule:
        await spine.reconcile(after=5000)
    assert cancels(spine) == len(contract.schedule)
    assert await spine.letters(intent) == ["reconcile_exhausted"]
    assert len(sends(spine)) == 1


async def test_the_credentials_of_another_account_cancel_nothing_and_are_not_believed(spine: Spine) -> None:
    """Hazard 8: they would say "done" for everything. What is known to exist shows that they are another account's."""
    by_id = replace(KEYED.lookup, by_key=False, by_reference=False)
    spine.change("keyed", lookups=spine.provider("keyed").lookups[:1])
    cancelling(spine, lookups=True, lookup=by_id)
    right = spine.catalogue
    await spine.sent("settled-before")
    await spine.advance(100)
    intent = await spine.sent("lost", faults=["act_then_drop"])
    serve(spine, BankAccount("another", "another-token"))
    await spine.reconcile(after=400, hasten=True, times=3)
    assert cancels(spine) == 0
    assert (await spine.row(intent))["status"] == "unknown"
    spine.catalogue = right
    await spine.reconcile(after=400, hasten=True)
    await redriven(spine)
    assert isinstance(spine.accept("lost"), Replay)
    assert standing(spine) == 2


async def test_a_pause_of_calls_holds_up_a_cancel(spine: Spine) -> None:
    cancelling(spine)
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.advance(KEYED.flight_limit + 10)
    await spine.execute("INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', '', true)")
    await spine.reconcile(after=100, times=3)
    assert cancels(spine) == 0
    await spine.expect(intent, letters=[], key_burned=False)
    await spine.execute("DELETE FROM idem.lanes")
    await spine.reconcile(after=1000)
    assert cancels(spine) == 1
    assert count_lookups(spine) == 0
    assert asked(spine, "/payments") == 1
