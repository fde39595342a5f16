"""Webhooks: signed so that code which shares nothing with the bank can verify them; twice, late, out of order."""

import base64
import hashlib
import hmac
import time

import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import Bank, BankAccount, BankSettings, SettingsError, WebhookOrder, signature

KEY = b"twenty-four bytes or so!"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def open_with_hooks(open_bank, receiver):
    return lambda **order: open_bank(
        webhook_url=receiver.url, webhook_secret=SECRET, webhook=WebhookOrder(**order), pending_seconds=0.3
    )


def verify(headers, body):
    """Standard Webhooks, by the specification."""
    headers = {name.lower(): value for name, value in headers.items()}
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 10
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def test_an_event_is_signed_and_tells_the_payment(open_with_hooks, pay, receiver):
    made = pay(open_with_hooks(), "k", reference="r").json()
    [event] = receiver.wait(1)
    _, headers, body = receiver.got[0]
    assert verify(headers, body)
    assert not verify(headers, body + b" ")
    assert (event["type"], event["data"]) == ("payment.succeeded", made)


def test_the_known_vector_of_the_specification():
    signed = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_that_is_none():
    with pytest.raises(SettingsError):
        signature("whsec_%%%", "id", 0, b"")


def test_no_answer_but_an_event(open_with_hooks, pay, receiver):
    bank = open_with_hooks()
    with pytest.raises(Exception, match="disconnected"):
        pay(bank, "k", fault="act_then_drop")
    assert receiver.wait(1)[0]["data"]["idempotency_key"] == "k"
    pay(bank, "none", fault="503")
    pay(bank, "d", fault="decline")
    assert receiver.wait(2)[1]["type"] == "payment.declined"


def test_pending_is_followed_by_its_end(open_with_hooks, pay, receiver):
    bank = open_with_hooks()
    pay(bank, "k", fault="pending")
    events = receiver.wait(2)
    assert [e["type"] for e in events] == ["payment.processing", "payment.succeeded"]
    assert [e["data"]["status"] for e in events] == ["processing", "succeeded"]
    while len(sent := bank.log.webhooks) < 2:
        time.sleep(0.01)
    (payment,) = bank.log.payments()
    assert sent[1].at >= payment.settles_at


def test_a_shifted_clock_brings_the_end_near(open_with_hooks, pay, receiver):
    bank = open_with_hooks()
    pay(bank, "k", fault="pending:3600")
    receiver.wait(1)
    bank.shift_clock(3600)
    assert receiver.wait(2)[1]["type"] == "payment.succeeded"


def test_twice_and_late(open_with_hooks, pay, receiver):
    begun = time.monotonic()
    pay(open_with_hooks(copies=2, delay=0.4), "k")
    first, second = receiver.wait(2)
    assert first == second
    assert receiver.got[0][1]["webhook-id"] == receiver.got[1][1]["webhook-id"]
    assert receiver.got[0][0] - begun >= 0.4


def test_out_of_order(open_with_hooks, pay, receiver):
    bank = open_with_hooks(hold=3, hold_seconds=5.0)
    for key in "abc":
        pay(bank, key)
    assert [e["data"]["idempotency_key"] for e in receiver.wait(3)] == ["c", "b", "a"]


def test_one_request_orders_otherwise(open_with_hooks, pay, receiver):
    bank = open_with_hooks()
    bank.script({"key": "lost"}, [{"webhook": {"copies": 0}}])
    bank.script({"key": "twice"}, [{"fault": "decline", "webhook": {"copies": 2}}])
    for key in ("lost", "twice"):
        pay(bank, key)
    assert [e["data"]["idempotency_key"] for e in receiver.wait(2)] == ["twice", "twice"]
    time.sleep(0.2)
    assert len(receiver.got) == 2


def test_it_tries_again_and_logs_every_delivery(open_with_hooks, pay, receiver):
    receiver.statuses = [500]
    bank = open_with_hooks()
    pay(bank, "k")
    receiver.wait(2)
    until_it_holds(lambda: len(bank.log.webhooks) >= 2)
    assert [w.status for w in bank.log.webhooks] == [500, 204]
    assert len({w.id for w in bank.log.webhooks}) == 1


def test_what_a_dead_bank_did_not_deliver_the_next_one_does(pay, receiver, log_path):
    accounts = (BankAccount(webhook_url="http://127.0.0.1:9/", webhook_secret=SECRET),)
    with Bank(BankSettings(log=log_path, accounts=accounts)).in_thread() as bank:
        pay(bank, "k")
    accounts = (BankAccount(webhook_url=receiver.url, webhook_secret=SECRET),)
    settings = BankSettings(log=log_path, accounts=accounts)
    with Bank(settings).in_thread() as bank:
        receiver.wait(1)
        pay(bank, "z")
        receiver.wait(2)
        time.sleep(0.1)
    with Bank(settings).in_thread():
        time.sleep(0.2)
    assert len(receiver.got) == 2
