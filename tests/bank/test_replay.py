"""The four replay behaviours, retention and restart."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import BankAccount


def test_stored_gives_the_first_answer_byte_for_byte(open_bank, pay):
    bank = open_bank(replay="stored")
    first, again = pay(bank, "k", reference="r"), pay(bank, "k", reference="r")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert len(bank.log.effects()) == 1
    assert [r.effect for r in bank.log.sends(key="k")] == ["made", "replayed"]


def test_stored_gives_a_cached_500_for_ever(open_bank, pay):
    bank = open_bank(replay="stored")
    assert pay(bank, "k", fault="act_then_500").status_code == 500
    again = pay(bank, "k")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (500, "true")
    assert len(bank.log.effects()) == 1


def test_stored_gives_a_cached_decline(open_bank, pay):
    bank = open_bank(replay="stored")
    first = pay(bank, "k", fault="decline")
    assert pay(bank, "k").content == first.content
    assert len(bank.log.payments()) == 1


@pytest.mark.parametrize("replay", ["stored", "current", "success_only"])
def test_409_while_the_first_is_in_flight(open_bank, pay, replay):
    bank = open_bank(replay=replay)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(pay, bank, "k", fault="stall_before_acting:0.6")
        until_it_holds(lambda: bank.log.sends(key="k"))
        second = pay(bank, "k")
        assert (second.status_code, second.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    assert first.result().status_code == 201
    assert pay(bank, "k").status_code in (200, 201)
    assert len(bank.log.effects()) == 1


@pytest.mark.parametrize("replay", ["stored", "current", "success_only"])
def test_the_same_key_with_another_body_is_refused(open_bank, pay, replay, http):
    bank = open_bank(replay=replay)
    pay(bank, "k")
    other = pay(bank, "k", amount=501)
    assert (other.status_code, other.json()["error"]["type"]) == (400, "idempotency_error")
    assert len(bank.log.effects()) == 1
    # Spaces and the order of members are no other body.
    same = http.post(
        f"{bank.url}/payments",
        content=b'{ "currency": "eur",  "amount": 500 }',
        headers={"idempotency-key": "k", "content-type": "application/json"},
    )
    assert same.status_code in (200, 201)


def test_a_request_that_was_refused_leaves_its_key_free(open_bank, pay):
    bank = open_bank(replay="stored")
    for wrong in ({"amount": 0}, {"amount": True}, {"amount": "5"}, {"currency": "x"}):
        assert pay(bank, "k", **wrong).status_code == 400
    assert pay(bank, "k").status_code == 201


def test_current_gives_the_status_of_now(open_bank, pay):
    bank = open_bank(replay="current")
    first = pay(bank, "k", fault="pending:60")
    again = pay(bank, "k")
    assert (first.json()["status"], again.json()["status"]) == ("processing", "processing")
    bank.shift_clock(60)
    later = pay(bank, "k")
    assert (later.status_code, later.json()["status"], later.json()["id"]) == (200, "succeeded", first.json()["id"])
    assert len(bank.log.payments()) == 1


def test_current_knows_what_a_500_hid(open_bank, pay):
    bank = open_bank(replay="current")
    assert pay(bank, "k", fault="act_then_500").status_code == 500
    assert (pay(bank, "k").status_code, len(bank.log.payments())) == (200, 1)


def test_success_only_replays_a_success(open_bank, pay):
    bank = open_bank(replay="success_only")
    assert pay(bank, "k").content == pay(bank, "k").content
    assert len(bank.log.payments()) == 1


@pytest.mark.parametrize("fault", ["act_then_500", "decline"])
def test_success_only_executes_again_after_anything_else(open_bank, pay, fault):
    bank = open_bank(replay="success_only")
    assert pay(bank, "k", fault=fault).status_code in (402, 500)
    assert pay(bank, "k").status_code == 201
    assert [p.key for p in bank.log.payments()] == ["k", "k"]
    assert len(bank.log.effects()) == (2 if fault == "act_then_500" else 1)


def test_none_executes_every_time(open_bank, pay, look, http):
    bank = open_bank(replay="none")
    assert pay(bank, "k").json()["id"] != pay(bank, "k").json()["id"]
    assert [p.key for p in bank.log.effects()] == ["k", "k"]
    assert "idempotency_key" not in look(bank)[0]
    assert http.get(f"{bank.url}/payments?key=k").status_code == 400


def test_without_a_key_every_request_executes(open_bank, pay):
    bank = open_bank(replay="stored")
    pay(bank)
    pay(bank)
    assert len(bank.log.effects()) == 2


def test_after_retention_the_same_key_executes_anew(open_bank, pay):
    bank = open_bank(replay="stored", retention=3600)
    first = pay(bank, "k").json()["id"]
    bank.shift_clock(3590)
    assert pay(bank, "k").json()["id"] == first
    bank.shift_clock(10)
    assert pay(bank, "k").json()["id"] != first
    assert len(bank.log.effects(key="k")) == 2


def test_retention_ends_by_itself(open_bank, pay):
    bank = open_bank(retention=0.3)
    pay(bank, "k")
    time.sleep(0.35)
    pay(bank, "k")
    assert len(bank.log.effects(key="k")) == 2


def test_the_key_in_the_body(open_bank, pay):
    bank = open_bank(key_header=None, key_field="request_id")
    one, two = pay(bank, "header-a", request_id="k"), pay(bank, "header-b", request_id="k")
    assert one.content == two.content
    assert [r.key for r in bank.log.sends()] == ["k", "k"]


def test_another_header_carries_the_key(open_bank, pay, http):
    bank = open_bank(key_header="PayPal-Request-Id", key_field=None)
    body = {"amount": 1, "currency": "eur"}
    sent = [http.post(f"{bank.url}/payments", json=body, headers={"paypal-request-id": "k"}) for _ in range(2)]
    assert sent[0].content == sent[1].content


@pytest.mark.parametrize("replay", ["stored", "current", "success_only"])
def test_keys_survive_a_restart(open_bank, pay, replay, log_path):
    bank = open_bank(replay=replay, log=log_path.with_name("first.jsonl"))
    with pytest.raises(httpx.RemoteProtocolError):
        pay(bank, "k", fault="act_then_drop")
    [made] = bank.log.effects()
    pay(bank, "e", fault="act_then_500")
    bank.shift_clock(5)
    # The same log in another place: the first bank still holds its own.
    log_path.write_bytes(log_path.with_name("first.jsonl").read_bytes())
    again = open_bank(replay=replay)
    assert pay(again, "k").json()["id"] == made.id
    assert pay(again, "k", amount=1).status_code == 400
    assert pay(again, "e").status_code == {"stored": 500, "current": 200, "success_only": 201}[replay]
    assert again.log.sends(key="k")[-1].nth == 3
    assert len(again.log.effects(key="k")) == 1


def test_accounts_are_worlds_of_their_own(open_bank, pay, http):
    accounts = (BankAccount("a", "token-a"), BankAccount("b", "token-b", replay="none"))
    bank = open_bank(accounts=accounts, require_auth=True)
    first = pay(bank, "k", token="token-a")
    assert pay(bank, "k", token="token-b").json()["id"] != first.json()["id"]
    assert pay(bank, "k", token="token-a").content == first.content
    assert {p.account for p in bank.log.effects()} == {"a", "b"}
    foreign = http.get(f"{bank.url}/payments/{first.json()['id']}", headers={"authorization": "Bearer token-b"})
    assert foreign.status_code == 404
    for token in (None, "wrong"):
        refused = pay(bank, "z", token=token)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_token")
    assert bank.log.effects(key="z") == []


def test_many_at_once_with_one_key_make_one_effect(open_bank, pay):
    bank = open_bank(latency=0.01)
    with ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(lambda _: pay(bank, "k").status_code, range(30)))
    assert set(statuses) <= {201, 409}
    assert (len(statuses), len(bank.log.effects(key="k"))) == (30, 1)
