"""What was sent under an earlier provider key, or cancelled by us, says nothing of what is sent now (hazard 10)."""

from uuid import UUID

from fix_desk import Desk
from fix_spine import KEYED, Spine
from fix_steps import claim_due_row
from fix_webhooks import event, hooking
from settling.shop import cancelling, sends, standing

from idem.decisions import Replay
from idem.outbox.domain.contract import LookupRule


async def cancelled(spine: Spine, **more: object) -> tuple[UUID, UUID]:
    """Executed, lost, cancelled: at rest under its old key, with a voided payment at the bank."""
    cancelling(spine, **more)
    intent = await spine.sent(faults=["act_then_drop"])
    old = (await spine.row(intent))["provider_key"]
    await spine.reconcile(after=KEYED.flight_limit + 10)
    assert (await spine.row(intent))["status"] == "held"
    assert standing(spine) == 0
    return intent, old


async def sent_anew(spine: Spine, fault: str) -> None:
    await spine.reconcile(after=200)
    await spine.work(faults=[fault])


async def test_the_event_of_the_cancelled_object_refuses_nothing(spine: Spine) -> None:
    """Before the new send, and after it."""
    async with hooking(Desk(spine, {})) as hooks:
        intent, old = await cancelled(spine)
        await hooks.change()
        refusal = event(old, "declined", "pay_old")
        assert await hooks.fate(refusal, "evt_1") == "noted"
        assert (await spine.row(intent))["status"] == "held"
        await sent_anew(spine, "act_then_drop")
        row = await spine.row(intent)
        assert (row["status"], row["generation"]) == ("unknown", 2)
        assert await hooks.fate(refusal, "evt_2") == "noted"
        assert (await spine.row(intent))["status"] == "unknown"
        assert await hooks.fate(event(row["provider_key"], "succeeded", "pay_new"), "evt_3") == "applied"
        assert isinstance(spine.accept(), Replay)
        assert await hooks.fate(refusal, "evt_4") == "noted"
        assert await spine.letters(intent) == []
        assert await hooks.fate(event(old, "succeeded", "pay_old"), "evt_5") == "conflict", "two of them: told"
    assert await spine.letters(intent) == ["possible_duplicate"]


async def test_a_lookup_of_the_new_key_is_not_answered_with_the_object_of_the_old_one(spine: Spine) -> None:
    intent, old = await cancelled(spine, lookups=True, strategies=("cancel_by_key", "lookup"), lookup=KEYED.lookup)
    await sent_anew(spine, "drop_before_acting")
    await spine.advance(10)
    taken = await claim_due_row(spine, "keyed")
    assert taken.earlier_keys == (str(old),)
    assert taken.row.provider_key != str(old)
    question = taken.question
    assert (question.method, question.path) == ("POST", "/payments")
    assert question.sent_at is not None
    assert question.keys == (taken.row.provider_key, str(old))
    assert (await spine.row(intent))["status"] == "unknown"


async def test_a_gone_key_is_asked_about_all_the_same(spine: Spine) -> None:
    """Look-ups only from here on: the voided payment is seen and does not count, the new one is, and does."""
    intent, _ = await cancelled(spine, lookups=True, strategies=("cancel_by_key", "lookup"), lookup=KEYED.lookup)
    await sent_anew(spine, "act_then_drop")
    cancelling(
        spine, cancel=None, lookups=True, strategies=("lookup",), lookup=LookupRule(True, True, True, horizon=10)
    )
    assert dict((await spine.reconcile(after=10)).settled) == {"lookup:succeeded": 1}
    assert isinstance(spine.accept(), Replay)
    assert await spine.letters(intent) == []
    assert standing(spine) == 1
    assert len(set(sends(spine))) == 2


async def test_an_absence_of_the_new_key_is_not_a_refusal_of_the_old_one(spine: Spine) -> None:
    intent, _ = await cancelled(spine, lookups=True, strategies=("cancel_by_key", "lookup"), lookup=KEYED.lookup)
    await sent_anew(spine, "drop_before_acting")
    cancelling(spine, cancel=None, lookups=True, strategies=("lookup",), lookup=KEYED.lookup)
    await spine.reconcile(after=200, times=2)
    assert (await spine.row(intent))["status"] != "unknown"
    await sent_anew(spine, "none")
    assert isinstance(spine.accept(), Replay)
    assert standing(spine) == 1
    assert len(set(sends(spine))) == 2, "nothing burned the second key"
