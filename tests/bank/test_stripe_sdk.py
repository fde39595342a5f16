"""The bank in its Stripe-like mode, driven by Stripe's own library: nobody here wrote what these calls expect."""

import pytest
import stripe
from stripe import StripeClient

from idem.testing.bank import Bank

CARD = {"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"}


@pytest.fixture
def bank(open_bank):
    return open_bank(api="stripe", token="sk_test_1", require_auth=True)


@pytest.fixture
def client(bank):
    return sdk(bank)


def sdk(bank: Bank, key: str = "sk_test_1") -> StripeClient:
    return StripeClient(key, base_addresses={"api": bank.url}, max_network_retries=0)


def made(client, key=None, **params):
    options = {} if key is None else {"idempotency_key": key}
    return client.v1.payment_intents.create({**CARD, "confirm": True, **params}, options)


def test_create_and_confirm_at_once(bank, client):
    intent = made(client, "k", metadata={"reference": "order-1"})
    assert intent.id.startswith("pi_")
    assert (intent.status, intent.amount, intent.amount_received) == ("succeeded", 500, 500)
    assert intent.metadata.to_dict() == {"reference": "order-1"}
    assert client.v1.payment_intents.retrieve(intent.id).to_dict() == intent.to_dict()
    charge = client.v1.charges.retrieve(intent.latest_charge)
    assert (charge.status, charge.captured, charge.payment_intent) == ("succeeded", True, intent.id)
    [effect] = bank.log.effects()
    assert (effect.id, effect.key, effect.reference, effect.amount) == (intent.id, "k", "order-1", 500)
    assert [each["id"] for each in bank.stripe_objects("payment_intent")] == [intent.id]


def test_create_then_confirm_then_refund(bank, client):
    intent = client.v1.payment_intents.create(CARD)
    assert (intent.status, bank.log.effects()) == ("requires_confirmation", [])
    assert client.v1.payment_intents.confirm(intent.id).status == "succeeded"
    assert [each.id for each in bank.log.effects()] == [intent.id]
    part = client.v1.refunds.create({"payment_intent": intent.id, "amount": 200})
    assert (part.status, part.amount, part.charge) == ("succeeded", 200, client_charge(client, intent))
    rest = client.v1.refunds.create({"charge": part.charge})
    assert rest.amount == 300
    charge = client.v1.charges.retrieve(part.charge)
    assert (charge.refunded, charge.amount_refunded) == (True, 500)
    with pytest.raises(stripe.InvalidRequestError) as told:
        client.v1.refunds.create({"payment_intent": intent.id})
    assert told.value.code == "charge_already_refunded"
    assert [each.id for each in client.v1.refunds.list({"payment_intent": intent.id})] == [rest.id, part.id]


def client_charge(client, intent):
    return client.v1.payment_intents.retrieve(intent.id).latest_charge


def test_manual_capture_and_cancel(client):
    held = made(client, capture_method="manual")
    assert (held.status, held.amount_capturable) == ("requires_capture", 500)
    taken = client.v1.payment_intents.capture(held.id, {"amount_to_capture": 400})
    assert (taken.status, taken.amount_received) == ("succeeded", 400)
    other = made(client, capture_method="manual")
    assert client.v1.payment_intents.cancel(other.id).status == "canceled"
    with pytest.raises(stripe.InvalidRequestError) as told:
        client.v1.payment_intents.capture(other.id)
    assert told.value.code == "payment_intent_unexpected_state"


def test_a_declined_card(bank, client):
    with pytest.raises(stripe.CardError) as told:
        made(client, "k", payment_method="pm_card_chargeDeclined")
    error = told.value
    assert (error.http_status, error.code, error.error.decline_code) == (402, "card_declined", "generic_decline")
    assert error.error.payment_intent.status == "requires_payment_method"
    assert (len(bank.log.payments()), bank.log.effects()) == (1, [])
    again = client.v1.payment_intents.confirm(error.error.payment_intent.id, {"payment_method": "pm_card_visa"})
    assert (again.status, len(bank.log.effects())) == ("succeeded", 1)


def test_3d_secure(bank, client):
    bank.script(None, ["requires_action:60"])
    intent = made(client, return_url="https://shop.example/back")
    action = intent.next_action
    assert (intent.status, action.type) == ("requires_action", "redirect_to_url")
    assert action.redirect_to_url.return_url == "https://shop.example/back"
    bank.shift_clock(60)
    later = client.v1.payment_intents.retrieve(intent.id)
    assert (later.status, later.next_action) == ("succeeded", None)
    assert client.v1.charges.retrieve(later.latest_charge).status == "succeeded"


def test_3d_secure_that_fails_and_one_that_is_called_off(bank, client):
    bank.script(None, ["requires_action_then_declined:60", "requires_action:60"])
    failed, canceled = made(client), made(client)
    assert client.v1.payment_intents.cancel(canceled.id).status == "canceled"
    bank.shift_clock(60)
    assert client.v1.payment_intents.retrieve(failed.id).status == "requires_payment_method"
    assert client.v1.payment_intents.retrieve(canceled.id).status == "canceled"
    assert bank.log.effects() == []
    types = [each.type for each in client.v1.events.list()]
    assert ("payment_intent.payment_failed" in types, "payment_intent.succeeded" in types) == (True, False)


@pytest.mark.parametrize(
    ("fault", "end"), [("pending:60", "succeeded"), ("pending_then_declined:60", "requires_payment_method")]
)
def test_processing(bank, client, fault, end):
    bank.script(None, [fault])
    intent = made(client)
    assert intent.status == "processing"
    bank.shift_clock(60)
    assert client.v1.payment_intents.retrieve(intent.id).status == end
    assert len(bank.log.effects()) == (end == "succeeded")


def test_a_payout_takes_days(bank, client):
    bank.script({"nth": 1, "key": "bad"}, ["pending_then_declined"])
    good = client.v1.payouts.create({"amount": 900, "currency": "eur"}, {"idempotency_key": "good"})
    bad = client.v1.payouts.create({"amount": 900, "currency": "eur"}, {"idempotency_key": "bad"})

    def statuses():
        return [client.v1.payouts.retrieve(each.id).status for each in (good, bad)]

    assert statuses() == ["pending", "pending"]
    bank.shift_clock(86_400)
    assert statuses() == ["in_transit", "in_transit"]
    bank.shift_clock(86_400)
    assert statuses() == ["paid", "failed"]
    assert [each.id for each in client.v1.payouts.list({"status": "paid"})] == [good.id]
    assert [each.id for each in bank.log.effects()] == [good.id]


def test_any_other_object(client):
    customer = client.v1.customers.create({"email": "a@b.example", "metadata": {"a": "1", "b": "2"}})
    assert customer.id.startswith("cus_")
    changed = client.v1.customers.update(customer.id, {"metadata": {"a": "", "c": "3"}})
    assert changed.metadata.to_dict() == {"b": "2", "c": "3"}
    session = client.v1.checkout.sessions.create({"mode": "payment", "line_items": [{"price": "p", "quantity": 1}]})
    assert session.object == "checkout.session"
    assert client.v1.checkout.sessions.retrieve(session.id).to_dict()["line_items"] == [{"price": "p", "quantity": "1"}]
    assert client.v1.customers.delete(customer.id).deleted
    with pytest.raises(stripe.InvalidRequestError) as told:
        client.v1.customers.retrieve("cus_none")
    assert (told.value.http_status, told.value.code) == (404, "resource_missing")


def test_lists_are_walked_both_ways(bank, client):
    ids = [made(client, f"k{n}").id for n in range(7)][::-1]
    pages = client.v1.payment_intents.list({"limit": 3})
    assert ([each.id for each in pages], pages.has_more) == (ids[:3], True)
    assert [each.id for each in pages.auto_paging_iter()] == ids
    back = client.v1.payment_intents.list({"limit": 2, "ending_before": ids[3]})
    assert ([each.id for each in back], back.has_more) == (ids[1:3], True)
    assert not client.v1.payment_intents.list({"limit": 3, "ending_before": ids[3]}).has_more
    bank.shift_clock(100)
    late = made(client, "late")
    assert [each.id for each in client.v1.payment_intents.list({"created": {"gte": late.created}})] == [late.id]
    assert len(client.v1.payment_intents.list({"created": {"lt": late.created}}).data) == 7
    with pytest.raises(stripe.InvalidRequestError, match="unknown parameter: metadata"):
        client.v1.payment_intents.list({"metadata": {"a": "b"}})  # type: ignore[typeddict-unknown-key]


def test_a_replay_is_byte_for_byte(bank, client):
    one, two = made(client, "k"), made(client, "k")
    assert one.last_response.body == two.last_response.body
    assert "idempotent-replayed" not in one.last_response.headers
    assert two.last_response.headers["idempotent-replayed"] == "true"
    assert two.last_response.headers["original-request"] == one.last_response.request_id
    assert len(bank.log.effects()) == 1
    [resend] = bank.log.resends()
    assert (resend.later.nth, resend.after_an_effect) == (2, True)


def test_the_same_key_with_another_body(bank, client):
    made(client, "k")
    with pytest.raises(stripe.IdempotencyError) as told:
        made(client, "k", amount=501)
    assert (told.value.http_status, told.value.error.type) == (400, "idempotency_error")
    assert len(bank.log.payments()) == 1


def test_wrong_keys_and_parameters(bank, client):
    with pytest.raises(stripe.AuthenticationError):
        made(sdk(bank, "sk_test_wrong"))
    for wrong in ({"amount": 0}, {"amount": "5.0"}, {"currency": "euros"}, {"metadata": "x"}):
        with pytest.raises(stripe.InvalidRequestError) as told:
            made(client, "k", **wrong)
        assert told.value.http_status == 400
    # Nothing of this was executed, so the key is still free.
    assert made(client, "k").status == "succeeded"


def test_the_version_is_echoed(bank, client):
    intent = client.v1.payment_intents.create({**CARD}, {"stripe_version": "2020-08-27"})
    assert intent.last_response.headers["stripe-version"] == "2020-08-27"
    assert intent.last_response.request_id.startswith("req_")
