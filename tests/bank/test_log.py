"""The log is the bank's truth: complete before any answer, after a SIGKILL, and over restarts."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from idem.testing.bank import Bank, BankAccount, BankSettings, LogCorrupt, LogInUse, read_log


def test_an_answer_that_was_seen_stands_in_the_log(bank, pay, log_path):
    for n in range(5):
        made = pay(bank, f"k{n}").json()["id"]
        kinds = [json.loads(line)["kind"] for line in log_path.read_text().splitlines()][-3:]
        assert kinds == ["request", "payment", "answer"]
        assert read_log(log_path).sends(key=f"k{n}")[0].payment == made


def test_nothing_is_answered_before_the_disk_has_it_and_waiting_requests_share_a_sync(bank, pay, monkeypatch):
    gate, inside, synced = threading.Event(), threading.Event(), []
    real = os.fsync

    def slow(fd):
        inside.set()
        gate.wait(60)
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fsync", slow)
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(pay, bank, f"k{n}") for n in range(20)]
        assert inside.wait(5)
        until = time.monotonic() + 30
        while len(bank.log.sends()) < 20 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.3)
        # In the log of the living bank, answered to nobody.
        assert (any(each.done() for each in asked), len(bank.log.sends())) == (False, 20)
        gate.set()
    assert [each.result().status_code for each in asked] == [201] * 20
    assert len(synced) < 20


def test_a_disk_that_refuses_means_no_answer_ever_again(log_path, pay, monkeypatch):
    def fail(fd):
        raise OSError(5, "the disk is gone")

    # The fsync that fails is the one of the requests, not the one of opening and closing.
    with pytest.raises(ExceptionGroup), Bank(BankSettings(log=log_path)).in_thread() as bank:
        real = os.fsync
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(httpx.TransportError):
            pay(bank, "k")
        monkeypatch.setattr(os, "fsync", real)
        with pytest.raises(httpx.TransportError):
            pay(bank, "z")


def test_the_log_keeps_no_tokens(open_bank, pay, log_path):
    pay(open_bank(token="very-secret"), "k", token="very-secret")
    assert "very-secret" not in log_path.read_text()


def test_after_a_sigkill_the_log_is_complete(bank_process, pay, log_path):
    settings = BankSettings(log=log_path, fault_rate=0.3, faults={"act_then_drop": 1, "act_then_500": 1}, seed=7)
    process, url = bank_process(settings)
    answered: list[tuple[str, int, str | None]] = []
    stop = threading.Event()

    def send(worker):
        with httpx.Client(trust_env=False, verify=False) as client:
            for n in range(10_000):
                if stop.is_set():
                    return
                key = f"{worker}-{n}"
                body = {"amount": 5, "currency": "eur", "reference": key}
                try:
                    response = client.post(f"{url}/payments", json=body, headers={"idempotency-key": key})
                except httpx.TransportError:
                    continue
                answered.append((key, response.status_code, response.json().get("id")))
                if len(answered) > 150:
                    process.kill()

    with ThreadPoolExecutor(8) as pool:
        sending = [pool.submit(send, worker) for worker in range(8)]
        process.wait(20)
        stop.set()
    assert not any(each.exception() for each in sending)
    log = read_log(log_path)
    for key, status, made in answered:
        [send_] = log.sends(key=key)
        assert send_.status == status
        assert (made is None) == (status == 500)
        assert len(log.effects(key=key)) == 1
    assert len(answered) > 150
    assert log.duplicates() == {}

    # The next process goes on from there: what was made is replayed, not made again.
    _, url = bank_process(BankSettings(log=log_path))
    for key, _status, made in answered[:20]:
        assert pay(url, key, amount=5, reference=key).json().get("id") == made
    assert read_log(log_path).duplicates() == {}


def test_killed_at_the_instant_of_acting_the_effect_stands(bank_process, pay, log_path):
    rule = {"match": {"key": "k"}, "faults": [{"kill_pid": "self"}]}
    process, url = bank_process(BankSettings(log=log_path, script=(rule,)))
    with pytest.raises(httpx.TransportError):
        pay(url, "k")
    assert process.wait(5) == -9
    log = read_log(log_path)
    [effect] = log.effects(key="k")
    [send] = log.sends()
    assert (send.effect, send.payment, send.status, send.answered_at) == ("made", effect.id, None, None)
    _, url = bank_process(BankSettings(log=log_path))
    again = pay(url, "k")
    assert (again.status_code, again.json()["id"]) == (201, effect.id)


def test_killed_when_it_has_received_nothing_is_done(bank_process, pay, log_path):
    rule = {"faults": [{"kill_pid": "self", "on": "received"}]}
    process, url = bank_process(BankSettings(log=log_path, script=(rule,)))
    with pytest.raises(httpx.TransportError):
        pay(url, "k")
    assert process.wait(5) == -9
    log = read_log(log_path)
    assert (len(log.sends(key="k")), log.payments()) == (1, [])


def test_restarts_go_on_where_the_log_ends(pay, look, log_path):
    settings = BankSettings(log=log_path, accounts=(BankAccount(lookup_lag=30),))
    for n in range(3):
        with Bank(settings).in_thread() as bank:
            pay(bank, f"k{n}", reference="r")
            bank.shift_clock(100)
            assert len(look(bank, reference="r")) == n + 1
    assert [r.id for r in read_log(log_path).requests] == list(range(1, 7))


def test_a_torn_last_line_was_never_answered_for(pay, log_path):
    with Bank(BankSettings(log=log_path)).in_thread() as bank:
        pay(bank, "k")
    whole = log_path.read_bytes()
    log_path.write_bytes(whole + b'{"kind":"payment","id":"pay_tor')
    assert len(read_log(log_path).payments()) == 1
    with Bank(BankSettings(log=log_path)).in_thread() as bank:
        pay(bank, "z")
    assert log_path.read_bytes().startswith(whole + b'{"kind":"request"')
    assert [p.key for p in read_log(log_path).payments()] == ["k", "z"]


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b'{"kind":"payment"}\n', b"[]\n", b'{"kind":[]}\n'])
def test_a_line_that_no_bank_wrote_is_refused(log_path, line):
    log_path.write_bytes(line)
    with pytest.raises(LogCorrupt, match="line 1"):
        read_log(log_path)
    with pytest.raises(LogCorrupt), Bank(BankSettings(log=log_path)).in_thread():
        pass


def test_two_banks_do_not_share_a_log(open_bank, log_path):
    open_bank()
    with pytest.raises(LogInUse), Bank(BankSettings(log=log_path)).in_thread():
        pass


def test_without_a_file_the_log_is_in_memory(pay):
    with Bank().in_thread() as bank:
        pay(bank, "k", reference="r")
        assert len(bank.log.effects(reference="r")) == 1


def test_duplicates_are_references_charged_twice(open_bank, pay):
    bank = open_bank(replay="none")
    pay(bank, reference="once")
    pay(bank, reference="twice")
    pay(bank, reference="twice")
    pay(bank, reference="declined", fault="decline*")
    pay(bank, reference="declined")
    assert {r: len(p) for r, p in bank.log.duplicates().items()} == {"twice": 2}
    assert bank.stats()["duplicates"] == 1
