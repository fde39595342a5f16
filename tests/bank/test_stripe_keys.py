"""What a Stripe-like account keeps under a key, and for how long; every fault of the bank in this mode."""

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fix_waiting import until_it_holds

from idem.testing.bank import Bank, BankAccount, BankSettings, FaultName, read_log
from idem.testing.bank.faults import Acts, AnswerFault

FORM = {"amount": "500", "currency": "eur", "payment_method": "pm_card_visa", "confirm": "true"}


@pytest.fixture
def post(http):
    """POST a form to the bank: a confirmed PaymentIntent, if nothing else is said."""

    def post_(bank, key=None, path="payment_intents", *, fault=None, timeout=10, **form):
        headers = {"content-type": "application/x-www-form-urlencoded"}
        headers.update({"x-bank-fault": fault} if fault else {})
        headers.update({"idempotency-key": key} if key else {})
        data = form if path != "payment_intents" else {**FORM, **form}
        return http.post(f"{bank.url}/v1/{path}", data=data, headers=headers, timeout=timeout)

    return post_


@pytest.fixture
def bank(open_bank):
    return open_bank(api="stripe", stall_seconds=0.2, pending_seconds=3600)


@pytest.mark.parametrize("fault", list(FaultName))
def test_every_fault_and_then_a_replay(bank, post, fault):
    """One effect under the key whatever went wrong, unless the bank keeps a 500 that hides that there is none."""
    times = {FaultName.DRIP: ":0"}.get(fault, "")
    try:
        first = post(bank, "k", fault=f"{fault}{times}", timeout=1)
    except httpx.TransportError:
        first = None
    plan = fault.plan
    lost = plan.delivery not in (AnswerFault.WHOLE, AnswerFault.DRIPPED)
    assert (first is None) == lost
    again = post(bank, "k")
    sends = read_log(bank.settings.log).sends(key="k")
    kept = plan.acts is not Acts.NEVER
    assert [send.effect for send in sends] == [
        "made" if kept and plan.acts is not Acts.REMEMBERS else None,
        "replayed" if kept else "made",
    ]
    assert (again.headers.get("idempotent-replayed") == "true") == kept
    if kept and plan.answer == "500":
        assert (again.status_code, again.json()["error"]["type"]) == (500, "api_error")
        assert again.headers["stripe-should-retry"] == "false"
        assert first is not None and first.headers["stripe-should-retry"] == "false"
    elif plan.status == "declined":
        assert (again.status_code, again.json()["error"]["code"]) == (402, "card_declined")
    else:
        assert again.status_code == 200
    declined = "declined" in (plan.status, plan.becomes)
    assert len(bank.log.effects()) == (0 if declined or plan.acts is Acts.REMEMBERS else 1)
    assert len(bank.log.payments()) == (0 if plan.acts is Acts.REMEMBERS else 1)


@pytest.mark.parametrize(
    ("fault", "status", "code", "retry"),
    [
        ("429", 429, "rate_limit", None),
        ("429_lock_timeout", 429, "lock_timeout", "true"),
        ("409_in_flight", 409, "idempotency_key_in_use", "true"),
        ("503", 503, None, None),
        ("500_before_acting", 500, None, None),
        ("401", 401, None, None),
    ],
)
def test_what_comes_before_the_key_is_not_kept(bank, post, fault, status, code, retry):
    refused = post(bank, "k", fault=fault)
    assert (refused.status_code, refused.json()["error"].get("code")) == (status, code)
    assert refused.headers.get("stripe-should-retry") == retry
    assert refused.headers["request-id"].startswith("req_")
    assert post(bank, "k").status_code == 200


def test_409_while_the_first_is_in_flight(bank, post):
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, bank, "k", fault="stall_before_acting:0.6")
        until_it_holds(lambda: bank.log.sends(key="k"))
        second = post(bank, "k")
        assert (second.status_code, second.headers["stripe-should-retry"]) == (409, "true")
        assert second.json()["error"]["code"] == "idempotency_key_in_use"
        # The body is compared before that.
        assert post(bank, "k", amount="7").json()["error"]["type"] == "idempotency_error"
    assert first.result().status_code == 200
    assert post(bank, "k").content == first.result().content
    assert len(bank.log.effects()) == 1


def test_a_key_is_of_its_endpoint(bank, post):
    post(bank, "k")
    assert post(bank, "k", "charges", amount="500", currency="eur", source="tok_visa").status_code == 400


def test_after_retention_the_key_executes_anew(open_bank, post):
    bank = open_bank(api="stripe", retention=3600)
    first = post(bank, "k").json()["id"]
    bank.shift_clock(3590)
    assert post(bank, "k").json()["id"] == first
    bank.shift_clock(10)
    assert post(bank, "k").json()["id"] != first
    assert len(bank.log.effects(key="k")) == 2
    assert [each.age >= 3600 for each in bank.log.resends()] == [False, True]


def test_actions_have_keys_too(bank, post):
    id = post(bank, confirm="false").json()["id"]
    one = post(bank, "c", f"payment_intents/{id}/confirm")
    assert (one.status_code, one.json()["status"]) == (200, "succeeded")
    assert post(bank, "c", f"payment_intents/{id}/confirm").content == one.content
    # Without its key it is executed, and refused; and that is kept.
    refused = post(bank, "d", f"payment_intents/{id}/confirm")
    assert refused.json()["error"]["code"] == "payment_intent_unexpected_state"
    assert post(bank, "d", f"payment_intents/{id}/confirm").headers["idempotent-replayed"] == "true"
    assert [each.key for each in bank.log.sends()] == [None, "c", "c", "d", "d"]


@pytest.mark.parametrize("replay", ["none", "current", "success_only"])
def test_the_other_replays(open_bank, post, replay):
    bank = open_bank(api="stripe", replay=replay)
    first = post(bank, "k", fault="pending:60").json()
    bank.shift_clock(60)
    second = post(bank, "k").json()
    assert (second["id"] == first["id"]) == (replay != "none")
    assert second["status"] == {"none": "succeeded", "current": "succeeded", "success_only": "processing"}[replay]
    post(bank, "e", fault="act_then_500")
    post(bank, "e")
    assert len(bank.log.effects(key="e")) == {"none": 2, "current": 1, "success_only": 2}[replay]


def test_money_is_given_back_once(open_bank, post):
    bank = open_bank(api="stripe", latency=0.02)
    id = post(bank).json()["id"]
    with ThreadPoolExecutor(10) as pool:
        statuses = pool.map(lambda _: post(bank, path="refunds", payment_intent=id).status_code, range(10))
    assert sorted(statuses) == [200] + [400] * 9
    assert sum(each["amount"] for each in bank.stripe_objects("refund")) == 500


def test_lists_follow_the_lag_and_expand(open_bank, post, http):
    bank = open_bank(api="stripe", lookup_lag=60)
    made = post(bank, **{"expand[]": "latest_charge"}).json()
    assert made["latest_charge"]["payment_intent"] == made["id"]
    url = f"{bank.url}/v1/payment_intents"
    assert http.get(f"{url}/{made['id']}").json()["latest_charge"] == made["latest_charge"]["id"]
    assert http.get(url).json()["data"] == []
    bank.shift_clock(60)
    [listed] = http.get(f"{url}?expand[]=data.latest_charge").json()["data"]
    assert listed == made


def test_json_and_torn_names_are_refused(bank, http, post):
    answer = http.post(f"{bank.url}/v1/payment_intents", json={"amount": 500, "currency": "eur"})
    assert answer.status_code == 400
    for name in ("metadata[a", "[a]", "metadata[a]b"):
        assert post(bank, "k", **{name: "x"}).status_code == 400
    assert post(bank, "k", **{"metadata": "x", "metadata[a]": "y"}).status_code == 400
    assert bank.log.payments() == []


def test_a_fault_may_be_ordered_in_the_metadata(bank, post):
    assert post(bank, "k", **{"metadata[bank_fault]": "decline"}).status_code == 402


def test_basic_credentials(open_bank, http):
    bank = open_bank(api="stripe", token="sk_test_b", require_auth=True)
    url = f"{bank.url}/v1/payment_intents"
    assert http.post(url, data=FORM, auth=("sk_test_b", "")).status_code == 200
    refused = http.post(url, data=FORM, auth=("sk_test_c", ""))
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "invalid_request_error")


def test_all_of_it_survives_a_restart(open_bank, post, http, log_path):
    bank = open_bank(api="stripe", log=log_path.with_name("first.jsonl"))
    one, waiting = post(bank, "k"), post(bank, "w", fault="requires_action:60").json()["id"]
    post(bank, "e", fault="500_cached")
    http.post(f"{bank.url}/v1/payment_intents/{waiting}/cancel")
    log_path.write_bytes(log_path.with_name("first.jsonl").read_bytes())
    again = open_bank(api="stripe")
    assert post(again, "k").content == one.content
    assert post(again, "e").status_code == 500
    again.shift_clock(60)
    assert http.get(f"{again.url}/v1/payment_intents/{waiting}").json()["status"] == "canceled"
    events = [json.loads(line) for line in log_path.read_text().splitlines()]
    assert http.get(f"{again.url}/v1/events?limit=100").json()["has_more"] is False
    assert {"payment", "change", "key"} <= {each["kind"] for each in events}


def test_after_a_sigkill_every_answer_that_was_seen_is_given_again(bank_process, http, log_path):
    account = BankAccount(api="stripe")
    process, url = bank_process(BankSettings(log=log_path, accounts=(account,)))
    answered: dict[str, bytes] = {}

    def send(worker):
        with httpx.Client(trust_env=False, verify=False) as client:
            for n in range(10_000):
                key = f"{worker}-{n}"
                try:
                    answer = client.post(f"{url}/v1/payment_intents", data=FORM, headers={"idempotency-key": key})
                except httpx.TransportError:
                    return
                answered[key] = answer.content
                if len(answered) == 100:
                    process.kill()

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(send, range(5)))
    assert len(answered) >= 100
    with Bank(BankSettings(log=log_path, accounts=(account,))).in_thread() as bank:
        for key, content in answered.items():
            again = http.post(f"{bank.url}/v1/payment_intents", data=FORM, headers={"idempotency-key": key})
            assert again.content == content
        # What the dead bank had written but not answered is whole too: an effect has its events and its key.
        effects = bank.log.effects()
        assert len({each.key for each in effects}) == len(effects) >= len(answered)
        types = defaultdict(list)
        for change in bank.stripe_events():
            types[change.key].append(change.type)
        for each in effects:
            assert types[each.key] == ["payment_intent.created", "charge.succeeded", "payment_intent.succeeded"]
