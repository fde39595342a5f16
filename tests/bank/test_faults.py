"""Every fault does what its name says: whether the effect was made is read from the log, the rest from the client."""

import json
import socket
import time

import httpx
import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import BankAccount, BankFault, FaultName, SettingsError, read_log


def test_without_a_fault_the_payment_is_made(bank, pay, log_path):
    response = pay(bank, "k", reference="order-1", metadata={"a": 1})
    assert response.status_code == 201
    payment = response.json()
    assert payment["id"].startswith("pay_")
    assert (payment["status"], payment["amount"], payment["currency"]) == ("succeeded", 500, "eur")
    assert (payment["reference"], payment["metadata"]) == ("order-1", {"a": 1})
    [effect] = read_log(log_path).effects()
    assert (effect.id, effect.key, effect.reference) == (payment["id"], "k", "order-1")
    [send] = read_log(log_path).sends()
    assert (send.effect, send.status, send.fault, send.nth) == ("made", 201, None, 1)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("act_then_drop", httpx.RemoteProtocolError),
        ("act_then_reset", httpx.ReadError),
        ("act_then_stall", httpx.ReadTimeout),
        ("cut_body", httpx.RemoteProtocolError),
    ],
)
def test_acts_and_the_answer_is_lost(bank, pay, log_path, fault, error):
    with pytest.raises(error):
        pay(bank, "k", fault=fault, timeout=0.3)
    log = read_log(log_path)
    assert len(log.effects(key="k")) == 1
    [send] = log.sends()
    assert (send.effect, send.fault, send.status) == ("made", fault, 201 if fault == "cut_body" else None)


@pytest.mark.parametrize(
    ("fault", "error"), [("drop_before_acting", httpx.RemoteProtocolError), ("reset_before_acting", httpx.ReadError)]
)
def test_hangs_up_and_does_nothing(bank, pay, log_path, fault, error):
    with pytest.raises(error):
        pay(bank, "k", fault=fault)
    log = read_log(log_path)
    assert log.payments() == []
    [send] = log.sends()
    assert (send.effect, send.status, send.fault) == (None, None, fault)


def test_a_drop_is_a_fin_and_a_reset_is_a_reset(bank, raw):
    assert raw(bank, fault="act_then_drop") == (b"", None)
    got, error = raw(bank, "other", fault="act_then_reset")
    assert got == b""
    assert isinstance(error, ConnectionResetError)


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("429:7", 429, "rate_limited"),
        ("503", 503, "unavailable"),
        ("500_before_acting", 500, "internal_error"),
        ("401", 401, "invalid_token"),
    ],
)
def test_answers_an_error_and_does_nothing(bank, pay, log_path, fault, status, code):
    response = pay(bank, "k", fault=fault)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.headers.get("retry-after") == {"429:7": "7", "503": "1"}.get(fault)
    log = read_log(log_path)
    assert log.payments() == []
    assert log.sends()[0].status == status
    # Nothing was executed, so nothing was cached: the same key is free.
    assert pay(bank, "k").status_code == 201


def test_html_403_is_not_in_the_banks_shape(bank, pay):
    response = pay(bank, "k", fault="html_403")
    assert (response.status_code, response.headers["content-type"]) == (403, "text/html")
    assert bank.log.payments() == []


@pytest.mark.parametrize("api", ["own", "stripe"])
def test_the_banks_own_answers_carry_a_header_and_a_proxys_page_does_not(open_bank, api):
    accounts = (BankAccount("main", "main-token", api=api, answers_carry=None if api == "stripe" else "Request-Id"),)
    bank = open_bank(accounts=accounts, require_auth=True)
    path = "/v1/payment_intents" if api == "stripe" else "/payments"
    form = {"amount": "1", "currency": "eur"}
    headers = {"authorization": "Bearer main-token"}

    def carried(fault=None, headers=headers, method="POST"):
        if fault is not None:
            bank.script(None, [fault])
        body = {"data" if api == "stripe" else "json": form} if method == "POST" else {}
        return "request-id" in httpx.request(method, bank.url + path, headers=headers, **body).headers

    assert all(carried(fault) for fault in (None, "401", "409_in_flight", "429", "503", "act_then_500", "decline"))
    assert carried(headers={"authorization": "Bearer wrong"}) and carried(method="GET")
    assert not carried("html_403")


def test_act_then_500_acts(bank, pay):
    response = pay(bank, "k", fault="act_then_500")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert len(bank.log.effects(key="k")) == 1


def test_stall_before_acting_acts_after_the_client_has_gone(bank, pay):
    with pytest.raises(httpx.ReadTimeout):
        pay(bank, "k", fault="stall_before_acting:0.6", timeout=0.2)
    assert bank.log.payments() == []
    until_it_holds(lambda: len(bank.log.effects(key="k")) == 1)


def test_act_then_stall_answers_after_its_seconds(bank, pay):
    begun = time.monotonic()
    assert pay(bank, "k", fault="act_then_stall:0.4").status_code == 201
    assert time.monotonic() - begun >= 0.4


def test_drip_sends_the_head_and_then_byte_by_byte(bank, raw):
    got, error = raw(bank, fault="drip:0.2", seconds=1.0)
    assert isinstance(error, TimeoutError)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 Created")
    assert 3 <= len(body) <= 6
    assert len(bank.log.effects()) == 1


def test_drip_ends(bank, pay):
    assert pay(bank, "k", fault="drip:0.001").json()["status"] == "succeeded"


def test_broken_body_is_a_201_that_nobody_can_read(bank, pay):
    response = pay(bank, "k", fault="broken_body")
    assert response.status_code == 201
    with pytest.raises(json.JSONDecodeError):
        response.json()
    assert len(bank.log.effects()) == 1
    assert pay(bank, "k").json()["status"] == "succeeded"


def test_cut_body_promises_more_than_it_sends(open_bank, raw):
    got, error = raw(open_bank(), fault="cut_body")
    head, _, body = got.partition(b"\r\n\r\n")
    promised = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert error is None
    assert 0 < len(body) < promised


def test_decline_is_a_payment_that_moves_no_money(bank, pay, look):
    response = pay(bank, "k", fault="decline", reference="r")
    assert response.status_code == 402
    assert response.json()["error"]["code"] == "card_declined"
    assert response.json()["id"].startswith("pay_")
    assert bank.log.effects() == []
    assert len(bank.log.payments()) == 1
    assert [p["status"] for p in look(bank, reference="r")] == ["declined"]


@pytest.mark.parametrize(("fault", "end"), [("pending:0.3", "succeeded"), ("pending_then_declined:0.3", "declined")])
def test_pending_becomes_what_it_will(bank, pay, fault, end, http):
    response = pay(bank, "k", fault=fault)
    assert (response.status_code, response.json()["status"]) == (201, "processing")
    url = f"{bank.url}/payments/{response.json()['id']}"
    assert http.get(url).json()["status"] == "processing"
    until_it_holds(lambda: http.get(url).json()["status"] == end)
    assert len(bank.log.effects()) == (1 if end == "succeeded" else 0)


def test_faults_of_a_look_up(bank, pay, look, http):
    pay(bank, "k", reference="r")
    url = f"{bank.url}/payments"
    bank.script({"method": "GET"}, ["503", "act_then_drop", "broken_body", "stall_before_acting:0.2"])
    assert http.get(url).status_code == 503
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(url)
    with pytest.raises(json.JSONDecodeError):
        http.get(url).json()
    assert len(look(bank, reference="r")) == 1
    assert len(bank.log.payments()) == 1


def test_a_request_orders_its_fault_in_its_body_and_by_sending(bank, pay):
    body = {"bank_fault": ["503", "none", "429*"]}
    assert [pay(bank, "k", **body).status_code for _ in range(5)] == [503, 201, 429, 429, 429]
    assert [r.fault for r in bank.log.sends(key="k")] == ["503", None, "429", "429", "429"]
    assert pay(bank, "z", bank_fault="no_such").json()["error"]["code"] == "bad_fault"
    assert pay(bank, "z", bank_fault=3).json()["error"]["code"] == "bad_fault"
    assert "bank_fault" not in pay(bank, "y", bank_fault="none").json()


def test_a_replay_under_a_fault_makes_no_second_effect(bank, pay):
    first = pay(bank, "k").json()
    with pytest.raises(httpx.RemoteProtocolError):
        pay(bank, "k", fault="none, act_then_drop")
    assert pay(bank, "k", fault="decline*").json() == first
    assert [r.effect for r in bank.log.sends()] == ["made", "replayed", "replayed"]


def test_a_request_cut_in_the_middle_is_logged_and_not_acted_upon(bank):
    head = b"POST /payments HTTP/1.1\r\nhost: b\r\nidempotency-key: k\r\ncontent-length: 100\r\n\r\n"
    for sent in (head + b'{"amount": 5', head[:30]):
        with socket.create_connection(("127.0.0.1", bank.port)) as sock:
            sock.sendall(sent)
    until_it_holds(lambda: len(bank.log.requests) == 2)
    first, second = sorted(bank.log.requests, key=lambda r: r.method, reverse=True)
    assert (first.complete, first.key, first.path, first.status) == (False, "k", "/payments", None)
    assert (second.complete, second.method) == (False, "")
    assert bank.log.payments() == bank.log.sends() == []


def test_a_connection_serves_many_requests_until_it_is_cut(bank):
    with httpx.Client(verify=False) as client:
        for _ in range(3):
            assert client.get(f"{bank.url}/payments").status_code == 200
        assert client.head(f"{bank.url}/payments").status_code == 405


def test_what_is_no_http_or_too_large_is_refused(open_bank, pay):
    bank = open_bank(max_body=1000)
    with socket.create_connection(("127.0.0.1", bank.port)) as sock:
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    assert pay(bank, "k", note="x" * 2000).status_code == 413
    assert bank.log.payments() == []


@pytest.mark.parametrize("text", ["nonsense", "429:soon", "pending:-1", ""])
def test_a_fault_that_is_none(text):
    with pytest.raises(SettingsError):
        BankFault.parse(text)


@pytest.mark.parametrize("name", list(FaultName))
def test_a_fault_reads_back_as_it_is_written(name):
    assert BankFault.parse(str(BankFault(name, 2.5))) == BankFault(name, 2.5)
