"""Calling a payment off by its key, and 500s that a key keeps, in the bank's own API."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import Bank, BankAccount, BankSettings, BankShape, CancelByKey, StatusWords


@pytest.fixture
def cancel(http):
    def cancel_(bank, key, path="/payments/cancel", **body):
        return http.post(f"{bank.url}{path}", json={"key": key, **body})

    return cancel_


def test_a_payment_is_called_off(bank, pay, look, cancel):
    pay(bank, "k")
    done = cancel(bank, "k")
    assert (done.status_code, done.json()) == (200, {})
    assert cancel(bank, "k").status_code == 200
    assert ([each["status"] for each in look(bank, key="k")], bank.log.effects()) == (["canceled"], [])
    assert len(bank.log.payments()) == 1
    # What the key was answered, it is answered for ever.
    assert pay(bank, "k").json()["status"] == "succeeded"
    assert [each.effect for each in bank.log.cancels(key="k")] == ["canceled", None]
    assert [each.effect for each in bank.log.sends()] == ["made", "replayed"]


def test_where_there_is_none_it_succeeds_silently(bank, pay, cancel):
    assert (cancel(bank, "k").status_code, cancel(bank, "k").json()) == (200, {})
    # And stops nothing that comes later.
    assert (pay(bank, "k").status_code, len(bank.log.effects())) == (201, 1)
    for wrong in (None, "", 5):
        assert cancel(bank, wrong).status_code == 400


def test_a_cancel_that_blocks_stops_what_comes_later(open_bank, pay, cancel, log_path):
    first = log_path.with_name("first.jsonl")
    bank = open_bank(cancel=CancelByKey(blocks_late_requests=True), log=first)
    cancel(bank, "k")
    refused = pay(bank, "k")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "payment_canceled")
    log_path.write_bytes(first.read_bytes())
    again = open_bank(cancel=CancelByKey(blocks_late_requests=True))
    assert (pay(again, "k").status_code, again.log.payments()) == (409, [])


@pytest.mark.parametrize(("blocks", "effects"), [(False, 1), (True, 0)])
def test_what_is_still_in_flight(open_bank, pay, cancel, blocks, effects):
    bank = open_bank(cancel=CancelByKey(blocks_late_requests=blocks))
    with ThreadPoolExecutor() as pool:
        pool.submit(pay, bank, "k", fault="stall_before_acting:0.6")
        until_it_holds(lambda: bank.log.sends())
        assert cancel(bank, "k").status_code == 200
    assert len(bank.log.effects()) == effects


def test_faults_meet_a_cancel_too(bank, pay, cancel):
    pay(bank, "k")
    bank.script({"path": "/payments/cancel"}, ["503", "act_then_500"])
    assert cancel(bank, "k").status_code == 503
    assert len(bank.log.effects()) == 1
    assert cancel(bank, "k").status_code == 500
    assert bank.log.effects() == []


def test_it_has_another_path_or_none(open_bank, pay, http, cancel):
    way = CancelByKey("/v2/payments/cancel", "idempotency_key")
    bank = open_bank(
        accounts=(BankAccount(cancel=way, shape=BankShape.own()), BankAccount("b", "b-token", cancel=None))
    )
    pay(bank, "k")
    assert http.post(f"{bank.url}/v2/payments/cancel", json={"idempotency_key": "k"}).status_code == 200
    assert bank.log.effects() == []
    headers = {"authorization": "Bearer b-token"}
    assert http.post(f"{bank.url}/payments/cancel", json={"key": "k"}, headers=headers).status_code == 405


def test_who_knows_no_keys_cancels_none(open_bank, pay, cancel):
    bank = open_bank(replay="none")
    pay(bank, "k")
    assert (cancel(bank, "k").status_code, len(bank.log.effects())) == (400, 1)


def test_the_event_of_a_cancel(open_bank, pay, cancel, receiver):
    bank = open_bank(webhook_url=receiver.url)
    pay(bank, "k", fault="pending:60")
    cancel(bank, "k")
    assert [event["type"] for event in receiver.wait(2)] == ["payment.processing", "payment.canceled"]
    bank.shift_clock(60)
    time.sleep(0.2)
    assert len(receiver.got) == 2


def test_an_account_that_comes_later_has_webhooks(open_bank, pay, receiver):
    bank = open_bank(require_auth=True)
    bank.add_account(BankAccount("late", "late-token", webhook_url=receiver.url))
    pay(bank, "k", token="late-token")
    assert receiver.wait(1)[0]["data"]["idempotency_key"] == "k"


def test_a_500_that_hides_that_nothing_was_done(open_bank, pay, look):
    bank = open_bank(replay="stored")
    assert pay(bank, "k", fault="500_cached").status_code == 500
    again = pay(bank, "k")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (500, "true")
    assert (look(bank, key="k"), bank.log.payments()) == ([], [])


@pytest.mark.parametrize("replay", ["current", "success_only", "none"])
def test_where_no_500_is_kept_it_is_executed_anew(open_bank, pay, replay):
    bank = open_bank(replay=replay)
    assert pay(bank, "k", fault="500_cached").status_code == 500
    assert pay(bank, "k").status_code == 201


def test_a_500_that_is_rolled_forward(open_bank, pay, look, http, receiver):
    bank = open_bank(replay="stored", webhook_url=receiver.url)
    assert pay(bank, "k", fault="500_rolled_forward:60", reference="r").status_code == 500
    [coming] = bank.log.effects(reference="r")
    assert look(bank, key="k") == look(bank, reference="r") == []
    assert http.get(f"{bank.url}/payments/{coming.id}").status_code == 404
    assert pay(bank, "k", reference="r").status_code == 500
    bank.shift_clock(60)
    assert receiver.wait(1)[0]["type"] == "payment.succeeded"
    assert [each["id"] for each in look(bank, key="k")] == [coming.id]
    assert pay(bank, "k", reference="r").status_code == 500


def test_success_only_with_what_is_rolled_forward_charges_twice(open_bank, pay):
    """The trap for whoever replays where only successes are kept."""
    bank = open_bank(replay="success_only")
    pay(bank, "k", fault="500_rolled_forward:60", reference="r")
    assert pay(bank, "k", reference="r").status_code == 201
    assert len(bank.log.duplicates()["r"]) == 2


def test_success_only_keeps_a_decline_that_is_a_2xx(http):
    """Checkout.com: a declined card is a 201 that says so, and that is kept; only 4xx and 5xx are executed anew."""
    declined = StatusWords(201, members=((("approved",), False), (("status",), "Declined")))
    account = BankAccount(
        replay="success_only", key_header="cko-idempotency-key", shape=BankShape({"declined": declined}, {})
    )
    with Bank(BankSettings(accounts=(account,))).in_thread() as bank:
        bank.script(None, ["decline", "422_before_acting"])

        def order(key="k"):
            return http.post(f"{bank.url}/payments", json={"amount": 5}, headers={"cko-idempotency-key": key})

        first = order()
        assert (first.status_code, first.json()["status"]) == (201, "Declined")
        assert order("z").status_code == 422
        assert (order("z").status_code, order().content) == (201, first.content)
        assert len(bank.log.payments()) == 2
