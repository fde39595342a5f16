"""Calls to Stripe whose answer proves nothing, and what settles them: the bank's log says what was sent."""

from pathlib import Path
from typing import Any

import pytest
from fix_stripe import Shop, shop

from idem.decisions import Replay
from idem.outbox.database.pool import Database

DAY = 86400


async def test_a_lost_answer_is_settled_by_a_replay(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(faults=["act_then_drop"])
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    assert dict((await stripe_shop.reconcile(after=10)).settled) == {"replay:succeeded": 1}
    assert await stripe_shop.end(intent) == ("succeeded", stripe_shop.objects()[0])
    assert (len(stripe_shop.objects()), stripe_shop.sends()) == (1, 2)


async def test_hazard_10_a_cached_500_ends_the_replays_and_its_events_settle(stripe_shop: Shop) -> None:
    stripe_shop.bank.script(None, ["act_then_500"])
    row = await stripe_shop.row(await stripe_shop.done())
    assert row is not None and (row["status"], row["key_burned"]) == ("unknown", True)
    assert dict((await stripe_shop.reconcile(after=10)).settled) == {"lookup:succeeded": 1}
    assert (len(stripe_shop.objects()), stripe_shop.sends()) == (1, 1)


async def test_hazard_10_a_cached_500_without_an_effect_is_never_sent_again(stripe_shop: Shop) -> None:
    """It may be rolled forward yet, so that no absence settles it: a person hears of it."""
    intent = await stripe_shop.done(faults=["500_cached"])
    for _ in stripe_shop.catalogue.providers["stripe"].contract.schedule:
        await stripe_shop.reconcile(after=DAY)
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    assert await stripe_shop.letters(intent) == ["reconcile_exhausted"]
    assert (stripe_shop.objects(), stripe_shop.sends()) == ([], 1)


@pytest.mark.parametrize("minutes", [10, 3 * 24 * 60])
async def test_hazard_27_what_is_rolled_forward_is_found_among_the_events(stripe_shop: Shop, minutes: int) -> None:
    """Its event names no request: our metadata do."""
    intent = await stripe_shop.done(faults=[f"500_rolled_forward:{minutes * 60}"])
    for _ in range(3):
        await stripe_shop.reconcile(after=700)
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    stripe_shop.bank.shift_clock(minutes * 60)
    await stripe_shop.reconcile(after=2 * DAY)
    assert await stripe_shop.end(intent) == ("succeeded", stripe_shop.objects()[0])
    assert (len(stripe_shop.objects()), stripe_shop.sends()) == (1, 1)
    assert await stripe_shop.letters(intent) == []


async def test_a_409_in_flight_is_asked_again(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(faults=["409_in_flight", "409_in_flight"])
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    for _ in range(2):
        await stripe_shop.reconcile(after=60)
    assert await stripe_shop.state(intent) == ("completed", None)
    assert (len(stripe_shop.objects()), stripe_shop.sends()) == (1, 3)


async def test_a_lock_timeout_is_no_proof_and_a_rate_limit_is_one(stripe_shop: Shop) -> None:
    stripe_shop.bank.script(None, ["429_lock_timeout", "429"])
    first, second = await stripe_shop.done("k1"), await stripe_shop.done("k2")
    assert await stripe_shop.state(first) == ("unknown", "unknown")
    assert await stripe_shop.state(second) == ("in_progress", "pending")


async def test_a_key_that_was_used_for_something_else_proves_nothing(stripe_shop: Shop) -> None:
    """The 400 is of another type than a request that Stripe does not take: nobody may call it never executed."""
    intent = stripe_shop.asked()
    key = await stripe_shop.provider_key(intent)
    await stripe_shop.by_hand(lambda sdk: sdk.v1.customers.create({"email": "a@b.example"}, {"idempotency_key": key}))
    await stripe_shop.work()
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    assert ("worker", "report", "ambiguous") in await stripe_shop.evidence(intent)
    assert await stripe_shop.letters(intent) == []
    for _ in range(3):
        await stripe_shop.reconcile(after=3000)
    # The customer under this key is none of what the call is about.
    assert (await stripe_shop.end(intent))[0] != "succeeded"
    assert stripe_shop.objects() == []


async def test_hazard_7_after_the_window_nothing_is_sent_and_the_events_settle(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(faults=["act_then_drop"])
    stripe_shop.bank.shift_clock(DAY + 60)
    assert dict((await stripe_shop.reconcile(after=DAY - 900)).settled) == {"lookup:succeeded": 1}
    assert (len(stripe_shop.objects()), stripe_shop.sends()) == (1, 1)
    assert await stripe_shop.end(intent) == ("succeeded", stripe_shop.objects()[0])


async def test_hazard_7_what_was_never_there_is_not_sent_anew_by_a_replay(stripe_shop: Shop) -> None:
    """The key is forgotten there: a second send under it would be a second effect. The look-ups alone decide."""
    intent = await stripe_shop.done(faults=["drop_before_acting"])
    stripe_shop.bank.shift_clock(DAY + 60)
    for _ in range(2):
        await stripe_shop.reconcile(after=DAY)
    assert stripe_shop.sends() == 1
    assert (await stripe_shop.state(intent))[0] == "failed_retryable"


async def test_a_confirmation_is_found_by_the_key_of_its_request(stripe_shop: Shop) -> None:
    """Its body takes no metadata, so that nothing else names it."""
    wanted: Any = {"amount": 900, "currency": "eur", "payment_method": "pm_card_visa"}
    made = await stripe_shop.by_hand(lambda sdk: sdk.v1.payment_intents.create(wanted))
    stripe_shop.bank.script({"path": f"/v1/payment_intents/{made.id}/confirm"}, ["act_then_500"])
    intent = await stripe_shop.done(operation="confirm", payment=made.id)
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    await stripe_shop.reconcile(after=10)
    assert await stripe_shop.end(intent) == ("succeeded", made.id)
    assert len([r for r in stripe_shop.bank.log.requests if r.path.endswith("/confirm")]) == 1


async def test_hazard_4_a_decline_is_an_answer_and_names_its_payment(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(card="pm_card_chargeDeclined")
    assert await stripe_shop.end(intent) == ("refused", stripe_shop.objects()[0])
    answer = stripe_shop.ask("k1", card="pm_card_chargeDeclined")
    assert isinstance(answer, Replay) and answer.answer.status == 402
    assert b"card_declined" in answer.answer.body


async def test_hazard_4_a_decline_whose_answer_was_lost(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(card="pm_card_chargeDeclined", faults=["act_then_drop"])
    await stripe_shop.reconcile(after=10)
    assert await stripe_shop.end(intent) == ("refused", stripe_shop.objects()[0])
    assert len(stripe_shop.objects()) == 1


async def test_a_payout_over_days_is_awaited_and_told_once(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(operation="pay_out")
    assert await stripe_shop.state(intent) == ("in_progress", "awaiting")
    for _ in range(4):
        await stripe_shop.advance(DAY)
        stripe_shop.bank.shift_clock(DAY / 2)
        await stripe_shop.reconcile()
    assert await stripe_shop.end(intent) == ("succeeded", stripe_shop.objects("payout")[0])
    assert await stripe_shop.letters(intent) == await stripe_shop.letters(intent, open=False) == []
    assert stripe_shop.sends() == 1


async def test_a_payout_that_comes_back(stripe_shop: Shop) -> None:
    intent = await stripe_shop.done(operation="pay_out", faults=[f"pending_then_declined:{2 * DAY}"])
    stripe_shop.bank.shift_clock(3 * DAY)
    await stripe_shop.reconcile(after=3 * DAY)
    assert (await stripe_shop.end(intent))[0] == "refused"


async def test_a_refund_is_pending_and_then_done(stripe_shop: Shop) -> None:
    payment = (await stripe_shop.end(await stripe_shop.done()))[1]
    well = await stripe_shop.done(
        "r1", "refund", payment=payment, amount=200, faults=[f"pending:{DAY}", f"pending_then_declined:{DAY}"]
    )
    badly = await stripe_shop.done("r2", "refund", payment=payment, amount=100)
    before = [(await stripe_shop.end(each))[0] for each in (well, badly)]
    stripe_shop.bank.shift_clock(DAY + 60)
    await stripe_shop.reconcile(after=2 * DAY)
    assert len(stripe_shop.objects("refund")) == 2
    assert [before, [(await stripe_shop.end(each))[0] for each in (well, badly)]] == [
        [None, None],
        ["succeeded", "refused"],
    ]


async def test_what_has_no_status_is_done_when_it_exists(stripe_shop: Shop) -> None:
    moved, enrolled = (
        await stripe_shop.done("t1", "transfer"),
        await stripe_shop.done("c1", "enrol", email="a@b.example"),
    )
    assert (await stripe_shop.end(moved))[1] == stripe_shop.objects("transfer")[0]
    assert (await stripe_shop.end(enrolled))[1] == stripe_shop.objects("customer")[0]


async def test_one_call_that_made_several_kinds_is_one_effect(database: Database, db_url: str, tmp_path: Path) -> None:
    """Its charge carries the same key and metadata: without `object_types` the look-up would see a second payment."""
    async with shop(database, db_url, tmp_path, more='lookup = { by_events = { types = ["*"] } }') as found:
        intent = await found.done(faults=["act_then_500"])
        await found.reconcile(after=10)
        assert await found.end(intent) == ("succeeded", found.objects()[0])
        assert await found.letters(intent) == []
