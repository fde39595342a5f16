"""Events of Stripe's: early, twice, out of order, about objects beside the call's own, and about what came later."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fix_stripe import Shop, event, shop

from idem.decisions import Accepted, Replay
from idem.outbox.database.pool import Database
from idem.testing.bank import WebhookOrder

DAY = 86400


@pytest.fixture
async def hooked(database: Database, db_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    """The bank sends each event when it happens."""
    async with shop(database, db_url, tmp_path, order=WebhookOrder()) as found:
        yield found


async def later_facts(found: Shop, intent: UUID) -> list[dict[str, Any]]:
    rows = await found.all(
        "SELECT payload FROM idem.events WHERE aggregateid = %(i)s AND type = 'later_fact' ORDER BY number", i=intent
    )
    return [row["payload"] for row in rows]


async def test_a_lost_answer_is_settled_by_its_events(hooked: Shop) -> None:
    """They come while the claim is live, or after it: whoever ends it folds what they prove."""
    intent = await hooked.done(faults=["act_then_stall"])
    kept = await hooked.told(3)
    await hooked.comes_to(intent, "completed")
    assert await hooked.end(intent) == ("succeeded", hooked.objects()[0])
    assert {each["type"]: each["fate"] for each in kept}["charge.succeeded"] == "ignored"
    assert (len(hooked.objects()), hooked.sends()) == (1, 1)
    assert await hooked.letters(intent) == []


async def unknown(found: Shop, **params: Any) -> tuple[UUID, Mapping[str, Any], Mapping[str, Any]]:
    """A payment whose answer is lost, with the objects that it has made at the bank."""
    intent = await found.done(**params, faults=["act_then_drop"])
    assert await found.state(intent) == ("unknown", "unknown")
    payment = found.bank.stripe_objects("payment_intent")[-1]
    (charge,) = [each for each in found.bank.stripe_objects("charge") if each["payment_intent"] == payment["id"]]
    return intent, payment, charge


async def test_hazard_18_the_charge_beside_a_payment_settles_nothing(stripe_shop: Shop) -> None:
    """It carries the same metadata and came of the same request; the payment alone is what the call is about."""
    intent, payment, charge = await unknown(stripe_shop)
    key = await stripe_shop.provider_key(intent)
    assert charge["metadata"] == payment["metadata"] == {"idem_deployment": "test", "idem_key": key}
    assert await stripe_shop.post(event("charge.succeeded", charge, key)) == "ignored"
    assert await stripe_shop.state(intent) == ("unknown", "unknown")
    seen = await stripe_shop.one(
        "SELECT details ->> 'note' AS note, outcome FROM idem.evidence WHERE source = 'webhook'"
    )
    assert (seen["note"], seen["outcome"]) == ("another object of the same call", None)
    assert await stripe_shop.post(event("payment_intent.succeeded", payment, None, "evt_2")) == "applied"
    assert await stripe_shop.end(intent) == ("succeeded", payment["id"])
    # Now that it is done the charge contradicts nothing either.
    assert await stripe_shop.post(event("charge.updated", charge, key, "evt_3")) == "ignored"
    assert await stripe_shop.letters(intent) == []


async def test_twice_and_last_first(database: Database, db_url: str, tmp_path: Path) -> None:
    async with shop(database, db_url, tmp_path, order=WebhookOrder(copies=2, hold=3)) as found:
        intent = await found.done()
        kept = await found.told(3)
        await found.comes_to(intent, "completed")
        assert await found.end(intent) == ("succeeded", found.objects()[0])
        assert {each["type"] for each in kept} == {
            "payment_intent.created",
            "charge.succeeded",
            "payment_intent.succeeded",
        }
        assert await found.letters(intent) == []
        events = await found.all("SELECT type FROM idem.events WHERE aggregateid = %(i)s", i=intent)
        assert [each["type"] for each in events].count("completed") == 1


async def test_three_d_secure_then_paid_by_event(hooked: Shop) -> None:
    """The client gets the secret at once; the key ends when Stripe says so."""
    intent = await hooked.done("k1", "pay_to_the_end", faults=["requires_action:3600"])
    assert await hooked.state(intent) == ("in_progress", "awaiting")
    hooked.bank.shift_clock(3700)
    await hooked.comes_to(intent, "completed")
    assert await hooked.end(intent) == ("succeeded", hooked.objects()[0])
    assert (len(hooked.objects()), hooked.sends()) == (1, 1)


async def test_three_d_secure_is_an_answer_by_itself(hooked: Shop) -> None:
    """The object exists; that its customer failed is told later, and changes no answer."""
    intent = await hooked.done(faults=["requires_action_then_declined:3600"])
    assert await hooked.state(intent) == ("completed", None)
    before = hooked.ask("k1")
    assert isinstance(before, Replay) and b"_secret_" in before.answer.body
    await hooked.told(2)
    hooked.bank.shift_clock(3700)
    await hooked.told(3)
    (fact,) = await later_facts(hooked, intent)
    assert fact["outcome"] == "refused"
    assert hooked.ask("k1") == before
    assert await hooked.letters(intent) == []


async def test_a_refund_and_a_dispute_are_later_facts_of_the_payment(hooked: Shop) -> None:
    """The refund is another call of ours; each event finds the intent that it is about."""
    paid = await hooked.done()
    await hooked.told(3)
    payment = hooked.objects()[0]
    back = await hooked.done("r1", "refund", payment=payment, amount=200)
    await hooked.told(5)
    await hooked.comes_to(back, "completed")
    (fact,) = await later_facts(hooked, paid)
    assert (fact["provider_reference"], fact["fields"]["amount_refunded"]) == (payment, 200)
    assert await later_facts(hooked, back) == []
    assert await hooked.end(back) == ("succeeded", hooked.objects("refund")[0])
    dispute = {"id": "du_1", "object": "dispute", "status": "needs_response", "payment_intent": payment, "amount": 300}
    assert await hooked.post(event("charge.dispute.created", dispute)) == "later_fact"
    assert [each["status"] for each in await later_facts(hooked, paid)][-1] == "needs_response"
    assert await hooked.end(paid) == ("succeeded", payment)
    assert [*await hooked.letters(paid), *await hooked.letters(back)] == []


async def test_a_payout_ends_by_its_events(hooked: Shop) -> None:
    intent = await hooked.done("p1", "pay_out")
    await hooked.told(1)
    hooked.bank.shift_clock(DAY + 60)
    await hooked.told(2)
    assert await hooked.state(intent) == ("in_progress", "awaiting")
    hooked.bank.shift_clock(DAY + 60)
    await hooked.comes_to(intent, "completed")
    (payout,) = hooked.bank.stripe_objects("payout")
    # A bank may send it back after that: money that is not where it was said to be is a person's matter.
    failed = {**payout, "status": "failed", "failure_code": "account_closed"}
    assert await hooked.post(event("payout.failed", failed)) == "conflict"
    assert await hooked.end(intent) == ("succeeded", payout["id"])
    assert await hooked.letters(intent) == ["conflict"]


async def test_an_event_of_another_program_is_nobodys_here(hooked: Shop) -> None:
    """The account is shared: without our tag an event opens no dead letter, even if its key looks like ours."""
    wanted: Any = {"amount": 900, "currency": "eur", "payment_method": "pm_card_visa", "confirm": True}
    key: Any = {"idempotency_key": "0b5f9b7e-2f3a-4c1d-9e4f-112233445566"}
    await hooked.by_hand(lambda sdk: sdk.v1.payment_intents.create(wanted, key))
    kept = {each["type"]: each["fate"] for each in await hooked.told(3)}
    assert kept.pop("payment_intent.created") == "ignored"
    assert kept and set(kept.values()) == {"foreign"}


async def test_the_key_of_the_request_and_that_of_the_object_are_both_tried(stripe_shop: Shop) -> None:
    """Somebody else confirms our payment under a key of their own: it is ours all the same."""
    intent, payment, _ = await unknown(stripe_shop)
    theirs = "0b5f9b7e-2f3a-4c1d-9e4f-112233445566"
    assert await stripe_shop.post(event("payment_intent.succeeded", payment, theirs)) == "applied"
    assert await stripe_shop.end(intent) == ("succeeded", payment["id"])


async def test_fetched_before_it_is_believed(database: Database, db_url: str, tmp_path: Path) -> None:
    async with shop(database, db_url, tmp_path, fetch=True) as found:
        intent, payment, charge = await unknown(found)
        key = await found.provider_key(intent)
        assert await found.post(event("charge.succeeded", charge, key)) == "ignored"
        # It says less than the truth.
        old = {**payment, "status": "processing"}
        assert await found.post(event("payment_intent.processing", old, key, "evt_2")) == "hint"
        assert await found.state(intent) == ("unknown", "unknown")
        await found.reconcile()
        assert await found.end(intent) == ("succeeded", payment["id"])


async def test_a_retry_of_the_client_hears_what_the_event_has_settled(hooked: Shop) -> None:
    hooked.bank.script(None, ["act_then_500"])
    await hooked.comes_to(await hooked.done(), "completed")
    again = hooked.ask("k1")
    assert isinstance(again, Replay) and again.answer.status == 201
    assert not isinstance(again, Accepted) and hooked.sends() == 1
