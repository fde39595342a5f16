import json
import time

import httpx
import pytest
import shop
from shop import pay
from sqlalchemy import text

from idem.testing.lab import NotSettled


def state_of(engine, order):
    with engine.begin() as db:
        return db.execute(text("SELECT state FROM orders WHERE id = :i"), {"i": order}).scalar_one()


@pytest.mark.parametrize("nth", [1, 2])
def test_two_tests_do_not_see_each_other(nth, engine, order, lab, idem_bank):
    assert order == 1 and lab.intents == [] and idem_bank.requests == ()
    assert pay(engine, order, "k1").status == 202
    lab.settle()
    assert lab.state("k1") == "completed"


def test_a_payment_and_its_handler(engine, order, lab, idem_bank):
    pay(engine, order, "k1")
    assert (lab.state("k1"), [row["status"] for row in lab.outbox]) == ("in_progress", ["pending"])
    assert lab.work().claimed == 1
    answer = pay(engine, order, "k1")
    (payment,) = idem_bank.payments
    assert (answer.status, json.loads(answer.body)) == (201, {"charge": payment.id, "state": "paid"})
    assert payment.details == {"cents": 4200, "order": "order-1"}
    assert lab.intent("k1").answer == {"charge": payment.id, "state": "paid"}
    assert state_of(engine, order) == "paid"
    assert [each.kind for each in lab.evidence("k1")] == ["accepted", "report"]


def test_a_charge_that_was_never_made_is_made_once(engine, order, lab, idem_bank):
    idem_bank.drop_before_acting()
    pay(engine, order, "k1")
    lab.work()
    assert (lab.state("k1"), idem_bank.payments) == ("unknown", [])
    lab.settle()
    assert (lab.state("k1"), len(idem_bank.charges)) == ("completed", 1)


def test_a_decline_is_an_answer(engine, order, lab, idem_bank):
    idem_bank.decline()
    pay(engine, order, "k1")
    lab.settle()
    assert pay(engine, order, "k1").status == 402
    assert (lab.intent("k1").outcome, idem_bank.charges) == ("refused", [])


def test_a_refused_request_waits_for_an_operator(engine, order, lab, idem_bank):
    idem_bank.refuse_request()
    pay(engine, order, "k1")
    lab.settle()
    assert [letter.reason for letter in lab.dead_letters] == ["rejected"]
    assert lab.state("k1") == "failed_retryable"


def test_the_provider_works_for_a_day(engine, order, lab, idem_bank):
    idem_bank.accept_and_work(seconds=86400)
    pay(engine, order, "k1")
    lab.work()
    assert [row["status"] for row in lab.outbox] == ["awaiting"]
    lab.advance(hours=23)
    lab.reconcile()
    assert [row["status"] for row in lab.outbox] == ["awaiting"]
    lab.advance(hours=2)
    lab.reconcile(now=True)
    assert lab.state("k1") == "completed"


@pytest.mark.parametrize("word", ["cached_500", "garble", "unavailable", "throttle"])
def test_whatever_the_line_says_it_is_charged_once(word, engine, order, lab, idem_bank):
    getattr(idem_bank, word)()
    pay(engine, order, "k1")
    lab.settle()
    assert (lab.state("k1"), len(idem_bank.charges)) == ("completed", 1)
    assert len(idem_bank.requests) > 1


def test_a_lookup_that_fails_is_made_again(engine, order, lab, idem_bank):
    idem_bank.cached_500()
    idem_bank.lookup_fails()
    pay(engine, order, "k1")
    lab.settle()
    assert (lab.state("k1"), len(idem_bank.charges)) == ("completed", 1)
    lookups = [request.status for request in idem_bank.requests if request.method == "GET"]
    assert lookups[0] == 503 and lookups[-1] == 200


def test_a_worker_dies_during_its_call(engine, order, lab, idem_bank):
    pay(engine, order, "k1")
    lab.kill_worker_during_call()
    assert [row["status"] for row in lab.outbox] == ["claimed"]
    assert len(idem_bank.charges) == 1
    assert lab.sweep().to_unknown == 1
    lab.settle()
    assert (lab.state("k1"), len(idem_bank.charges)) == ("completed", 1)


def test_a_worker_dies_before_its_call(engine, order, lab, idem_bank):
    pay(engine, order, "k1")
    lab.kill_worker_before_call()
    assert idem_bank.requests == ()
    lab.settle()
    assert (lab.state("k1"), len(idem_bank.charges)) == ("completed", 1)
    with pytest.raises(LookupError, match="no row is due"):
        lab.kill_worker_during_call()


def test_what_does_not_come_to_rest_is_told(engine, order, lab):
    pay(engine, order, "k1")
    with engine.begin() as db:
        db.execute(text("INSERT INTO idem.lanes (provider, account, paused) VALUES ('ledger', 'main', true)"))
    with pytest.raises(NotSettled, match=r"charges\.create 'k1': outbox row pending, and its lane is paused"):
        lab.settle()


def test_daemons_that_run_beside(engine, order, lab):
    with lab.running():
        pay(engine, order, "k1")
        until = time.monotonic() + 20
        while state_of(engine, order) != "paid":
            assert time.monotonic() < until
            time.sleep(0.05)
    assert pay(engine, order, "k1").status == 201


def test_a_handler_that_raises_is_told_again(engine, order, lab, monkeypatch):
    with engine.begin() as db:
        db.execute(text("ALTER TABLE orders ADD CONSTRAINT not_yet CHECK (state IS NULL)"))
    pay(engine, order, "k1")
    lab.work()
    assert (lab.state("k1"), state_of(engine, order)) == ("completed", None)
    with engine.begin() as db:
        db.execute(text("ALTER TABLE orders DROP CONSTRAINT not_yet"))
    lab.settle()
    assert state_of(engine, order) == "paid"


def test_a_key_expires(engine, order, lab):
    pay(engine, order, "k1")
    lab.settle()
    lab.advance(days=4)
    lab.sweep()
    assert lab.state("k1") == "expired"
    assert pay(engine, order, "k1").status == 410


def test_who_is_meant(engine, order, lab):
    pay(engine, order, "k1")
    (intent,) = lab.intents
    assert lab.intent(intent.id) == lab.intent(str(intent.id)) == lab.intent("k1", tenant="default") == intent
    with pytest.raises(LookupError, match=r"default/charges\.create/k1"):
        lab.intent("k2")


def test_the_application_is_left_as_it_was(lab, idem_bank):
    at = {each.origin for each in shop.idem.providers["ledger"].accounts.values()}
    assert at == {idem_bank.url}
    lab.close()
    at = {each.origin for each in shop.idem.providers["ledger"].accounts.values()}
    assert at == {"https://ledger.example"}


def test_the_bank_acts_and_then_hangs_up(idem_bank):
    order = {"amount": 5, "to": {"iban": "DE1"}}
    idem_bank.act_then_drop()
    idem_bank.drop_before_acting()
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{idem_bank.url}/any/path", json=order, headers={"Idempotency-Key": f"k{_}"})
    (payment,) = idem_bank.payments
    assert (payment.key, payment.details) == ("k0", order)
    assert [(each.path, each.status, each.effect) for each in idem_bank.requests] == [
        ("/any/path", None, "made"),
        ("/any/path", None, None),
    ]
    shown = httpx.get(f"{idem_bank.url}/any/path/{payment.id}").json()
    assert (shown["id"], shown["to"]) == (payment.id, {"iban": "DE1"})


@pytest.mark.asyncio
async def test_steps_from_a_running_loop(engine, order, lab, idem_bank):
    idem_bank.act_then_drop()
    pay(engine, order, "k1")
    lab.settle()
    assert len(idem_bank.charges) == 1
