"""Events of a Stripe-like account: in the list and as webhooks, read by Stripe's own library."""

import json
import time

import httpx
import pytest
import stripe
from stripe import StripeClient

from idem.testing.bank import Bank, BankSettings, StripeSettings, WebhookOrder

SECRET, OLD = "whsec_of_the_new_one", "whsec_of_the_old_one"
CARD = {"amount": 500, "currency": "eur", "payment_method": "pm_card_visa", "confirm": True}


@pytest.fixture
def bank(open_bank):
    return open_bank(api="stripe", stripe=StripeSettings(events_lag=0))


@pytest.fixture
def client(bank):
    return sdk(bank)


def sdk(bank: Bank) -> StripeClient:
    return StripeClient("sk_test_1", base_addresses={"api": bank.url}, max_network_retries=0)


def pay(client, key=None, **params):
    return client.v1.payment_intents.create({**CARD, **params}, {"idempotency_key": key} if key else {})


def test_an_event_names_the_request_and_its_key(client):
    intent = pay(client, "k", metadata={"idem_key": "k"})
    newest, charged, created = client.v1.events.list().data
    assert [each.type for each in (created, charged, newest)] == [
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
    ]
    for event in (newest, charged, created):
        assert (event.request.id, event.request.idempotency_key) == (intent.last_response.request_id, "k")
    assert newest.data.object.to_dict() == intent.to_dict()
    assert created.data.object.status == "requires_confirmation"
    assert newest.data.previous_attributes.to_dict()["status"] == "requires_confirmation"
    assert client.v1.events.retrieve(newest.id).to_dict() == newest.to_dict()


def test_what_comes_by_itself_names_nobody(bank, client):
    bank.script(None, ["pending:60"])
    intent = pay(client, "k")
    bank.shift_clock(60)
    ended = client.v1.events.list({"type": "payment_intent.succeeded"}).data[0]
    assert (ended.request.id, ended.request.idempotency_key) == (None, None)
    assert (ended.data.object.id, ended.data.object.status) == (intent.id, "succeeded")
    assert ended.created >= intent.created + 60


def test_a_lost_answer_is_found_by_its_key(bank, client):
    bank.script(None, ["act_then_drop"])
    with pytest.raises(stripe.APIConnectionError):
        pay(client, "lost")
    pay(client, "other")
    found = [e for e in client.v1.events.list({"limit": 100}).data if e.request.idempotency_key == "lost"]
    assert {e.data.object.object for e in found} == {"payment_intent", "charge"}
    assert bank.log.effects(key="lost")[0].id in {e.data.object.id for e in found}


def test_filters_and_pages(bank, client):
    for n in range(4):
        pay(client, f"k{n}")
    bank.shift_clock(10)
    late = pay(client, "late")
    assert len(client.v1.events.list({"types": ["payment_intent.succeeded", "charge.succeeded"]}).data) == 10
    assert len(client.v1.events.list({"type": "payment_intent.*", "limit": 100}).data) == 10
    since = client.v1.events.list({"created": {"gte": late.created}})
    assert len(since.data) == 3
    everything = client.v1.events.list({"limit": 100}).data
    first = client.v1.events.list({"limit": 4})
    second = client.v1.events.list({"limit": 4, "starting_after": first.data[-1].id})
    assert [e.id for e in [*first.data, *second.data]] == [e.id for e in everything[:8]]
    back = client.v1.events.list({"limit": 4, "ending_before": second.data[0].id})
    assert ([e.id for e in back.data], back.has_more) == ([e.id for e in first.data], False)
    assert [e.id for e in client.v1.events.list({"limit": 2}).auto_paging_iter()] == [e.id for e in everything]
    for wrong in ({"limit": 101}, {"starting_after": "evt_none"}, {"created": {"after": 1}}, {"colour": "red"}):
        with pytest.raises(stripe.InvalidRequestError):
            client.v1.events.list(wrong)


def test_events_appear_late_and_go_after_30_days(open_bank):
    bank = open_bank(api="stripe", stripe=StripeSettings(events_lag=30))
    client = sdk(bank)
    intent = pay(client, "k")
    assert (client.v1.events.list().data, client.v1.payment_intents.retrieve(intent.id).status) == ([], "succeeded")
    bank.shift_clock(30)
    assert len(client.v1.events.list().data) == 3
    bank.shift_clock(30 * 86_400)
    assert client.v1.events.list().data == []


def test_a_cached_500_hides_that_nothing_was_done(bank, client):
    bank.script(None, ["500_cached"])
    for _ in range(2):
        with pytest.raises(stripe.APIError) as told:
            pay(client, "k")
        assert (told.value.http_status, told.value.headers["stripe-should-retry"]) == (500, "false")
    assert (client.v1.events.list().data, bank.log.payments()) == ([], [])


@pytest.mark.parametrize("named", [False, True])
def test_a_cached_500_that_is_rolled_forward(open_bank, named):
    """The effect is seen by its event alone, and that may name no key: only the metadata tell whose it is."""
    bank = open_bank(api="stripe", stripe=StripeSettings(rolled_forward_key=named))
    client = sdk(bank)
    bank.script(None, ["500_rolled_forward:60"])
    for _ in range(2):
        with pytest.raises(stripe.APIError):
            pay(client, "k", metadata={"idem_key": "k"})
    assert (client.v1.events.list().data, client.v1.payment_intents.list().data) == ([], [])
    # It is on its way, and will move money.
    assert len(bank.log.effects(reference="k")) == 1
    bank.shift_clock(60)
    ended = client.v1.events.list({"type": "payment_intent.succeeded"}).data[0]
    assert ended.data.object.metadata.to_dict() == {"idem_key": "k"}
    assert (ended.request.id, ended.request.idempotency_key) == (None, "k" if named else None)
    # The key still says what it said.
    with pytest.raises(stripe.APIError):
        pay(client, "k", metadata={"idem_key": "k"})
    assert len(bank.log.effects()) == 1


@pytest.fixture
def open_with_hooks(open_bank, receiver):
    def open_(**given):
        order = WebhookOrder(**{name: given.pop(name) for name in list(given) if name in WebhookOrder.__annotations__})
        given = {"webhook_url": receiver.url, "webhook_secret": SECRET, **given}
        return open_bank(api="stripe", webhook=order, **given)

    return open_


def read(got, secret=SECRET):
    _, headers, body = got
    signed = {name.lower(): value for name, value in headers.items()}["stripe-signature"]
    return stripe.Webhook.construct_event(body, signed, secret)


def test_a_webhook_is_what_the_library_takes(open_with_hooks, receiver):
    bank = open_with_hooks()
    client = sdk(bank)
    pay(client, "k")
    receiver.wait(3)
    listed = {each.id: each.to_dict() for each in client.v1.events.list().data}
    assert {event.id: event.to_dict() for event in map(read, receiver.got)} == listed
    with pytest.raises(stripe.SignatureVerificationError):
        read(receiver.got[0], OLD)
    assert {each.status for each in bank.log.webhooks} == {204}


def test_while_the_secret_is_changed_both_sign(open_with_hooks, receiver):
    pay(sdk(open_with_hooks(old_webhook_secrets=(OLD,))))
    receiver.wait(3)
    assert read(receiver.got[0], SECRET).id == read(receiver.got[0], OLD).id


def test_webhooks_twice_late_and_out_of_order(open_with_hooks, receiver):
    begun = time.monotonic()
    pay(sdk(open_with_hooks(copies=2, delay=0.3, hold=3)))
    types = [event["type"] for event in receiver.wait(6)]
    assert (types[:2], types[4:]) == (["payment_intent.succeeded"] * 2, ["payment_intent.created"] * 2)
    assert receiver.got[0][0] - begun >= 0.3


def test_a_shifted_clock_does_not_spoil_the_signature(open_with_hooks, receiver):
    bank = open_with_hooks()
    payout = sdk(bank).v1.payouts.create({"amount": 5, "currency": "eur"})
    receiver.wait(1)
    bank.shift_clock(2 * 86_400)
    receiver.wait(3)
    paid = next(event for event in map(read, receiver.got) if event.type == "payout.paid")
    assert (paid.data.object.id, paid.data.object.status) == (payout.id, "paid")
    assert paid.request.idempotency_key is None


def test_what_was_called_off_is_not_announced(open_with_hooks, receiver):
    bank = open_with_hooks()
    client = sdk(bank)
    bank.script(None, ["requires_action:60"])
    intent = pay(client)
    client.v1.payment_intents.cancel(intent.id)
    bank.shift_clock(60)
    assert [event["type"] for event in receiver.wait(3)][2:] == ["payment_intent.canceled"]
    time.sleep(0.2)
    assert len(receiver.got) == 3


def test_the_receiver_may_come_later(open_bank, receiver):
    bank = open_bank(api="stripe", webhook_secret=SECRET)
    pay(sdk(bank))
    bank.send_webhooks_to(receiver.url)
    receiver.wait(3)
    assert {read(got).type for got in receiver.got} >= {"charge.succeeded"}
    with pytest.raises(LookupError, match="no account 'nobody'"):
        bank.send_webhooks_to(receiver.url, account="nobody")


def test_a_process_is_started_from_settings(bank_process, tmp_path):
    account = {"token": "sk_test_1", "api": "stripe", "stripe": {"events_lag": 3600.0}}
    settings = BankSettings.from_json(json.dumps({"accounts": [account], "log": str(tmp_path / "log")}))
    _, url = bank_process(settings)
    form = {"amount": "1", "currency": "eur"}
    made = httpx.post(f"{url}/v1/payment_intents", data=form, trust_env=False)
    assert made.json()["status"] == "requires_payment_method"
    assert httpx.get(f"{url}/v1/events", trust_env=False).json()["data"] == []
