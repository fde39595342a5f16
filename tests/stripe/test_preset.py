"""What stands behind `kind = "stripe"`: its facts against Stripe's own library, its rules, and what is laid over it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fix_stripe import KEY, SECRET, configured
from fix_stripe_sdk import writes

from idem import Idem
from idem.errors import ConfigError
from idem.outbox.config import Configuration, explain, load
from idem.outbox.domain.contract import Response
from idem.outbox.providers.http import HttpProvider
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Succeeded

ENV = {"STRIPE_SECRET_KEY": KEY, "STRIPE_WEBHOOK_SECRET": SECRET}
SECRET_KEY = 'secret_key = { env = "STRIPE_SECRET_KEY" }\n'
MONEY = frozenset(
    {"/v1/payment_intents", "/v1/setup_intents", "/v1/charges", "/v1/refunds", "/v1/payouts", "/v1/transfers",
     "/v1/topups", "/v1/customers", "/v1/checkout/sessions", "/v1/invoices", "/v1/subscriptions",
     "/v1/transfers/tr_1/reversals"}
)  # fmt: skip
"""Calls that must be known by their metadata."""


@pytest.fixture
def provider(tmp_path: Path) -> HttpProvider:
    found = configured(tmp_path, "http://127.0.0.1:9").providers["stripe"]
    assert isinstance(found, HttpProvider)
    return found


def configuration(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "idem.toml"
    file.write_text(text)
    return load(file, ENV)


def findings(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "idem.toml"
    file.write_text(text)
    return [str(each) for each in explain(file, ENV) if each.level == "error"]


def test_the_tag_stands_only_where_stripe_takes_metadata(provider: HttpProvider) -> None:
    """Every POST of Stripe's v1 API, by its own library: anywhere else the call would be refused."""
    assert provider.tag is not None and len(writes()) > 200
    paths = {re.sub(r"\{[^}]*\}", "x_1", path): takes for path, takes in writes().items()}
    assert [path for path, takes in paths.items() if provider.tag.belongs(path) and not takes] == []
    assert [path for path in MONEY if not provider.tag.belongs(path)] == []
    # An existing object has the tag of the call that made it: another key there would name another call.
    assert [
        path for path in paths if path.endswith(("/x_1", "/capture", "/confirm")) and provider.tag.belongs(path)
    ] == []


def test_every_kind_of_money_has_its_object(provider: HttpProvider) -> None:
    assert provider.kind("/v1/payment_intents/pi_1/confirm") == "payment_intent"
    assert provider.kind("/v1/refunds") == provider.kind("/v1/charges/ch_1/refunds") == "refund"
    assert provider.kind("/v1/customers/cus_1") == "customer"
    assert provider.kind("/v1/customers/cus_1/sources") is None
    assert provider.kind("/v1/payment_intents_of_others") is None


def said(provider: HttpProvider, status: int, body: Any, **headers: str) -> Outcome:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return provider.classify(Response(status, given, json.dumps(body).encode()))[0]


def shown(kind: str, status: str | None = None, id: str = "x_1", **members: Any) -> dict[str, Any]:
    return {"id": id, "object": kind, **({} if status is None else {"status": status}), **members}


STATUSES: dict[str, dict[Any, str]] = {
    "payment_intent": {
        Succeeded: "succeeded", "interim": "requires_capture requires_action requires_confirmation",
        Pending: "processing", Refused: "canceled", Ambiguous: "a_state_of_next_year",
    },
    "setup_intent": {Succeeded: "succeeded", "interim": "requires_action"},
    "charge": {Pending: "pending", Refused: "failed"},
    "refund": {Succeeded: "succeeded", Pending: "pending requires_action", Refused: "failed canceled"},
    "payout": {Succeeded: "paid", Pending: "pending in_transit", Refused: "failed canceled", Ambiguous: "by_pigeon"},
    "checkout.session": {"interim": "open", Succeeded: "complete"},
    "invoice": {"interim": "draft"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("thing", "outcome"),
    [
        *(
            (shown(kind, status), outcome)
            for kind, said in STATUSES.items()
            for outcome, words in said.items()
            for status in words.split()
        ),
        (shown("payment_intent", "requires_payment_method", last_payment_error=None), "interim"),
        (shown("payment_intent", "requires_payment_method", last_payment_error={"type": "card_error"}), Refused),
        (shown("charge", "succeeded", captured=True), Succeeded),
        (shown("charge", "succeeded", captured=False), "interim"),
        (shown("transfer"), Succeeded),
        (shown("customer"), Succeeded),
        ({"object": "list", "data": []}, Ambiguous),
        ({"status": "ok"}, Ambiguous),
    ],
    ids=lambda value: f"{value.get('object')}-{value.get('status')}" if isinstance(value, dict) else "",
)
def test_statuses(provider: HttpProvider, thing: dict[str, Any], outcome: Any) -> None:
    found = said(provider, 200, thing)
    if outcome == "interim":
        assert isinstance(found, Succeeded) and found.interim and found.reference == "x_1"
    else:
        assert isinstance(found, outcome) and not getattr(found, "interim", False), found


def wrong(type: str, code: str | None = None, **members: Any) -> dict[str, Any]:
    return {"error": {"type": type, "message": "No.", **({} if code is None else {"code": code}), **members}}


@pytest.mark.parametrize(
    ("status", "body", "headers", "outcome"),
    [
        (402, wrong("card_error", "card_declined"), {"stripe_should_retry": "false"}, Refused),
        (400, wrong("card_error", "expired_card"), {}, Refused),
        (400, wrong("invalid_request_error", "parameter_missing"), {}, NotExecuted("request")),
        (404, wrong("invalid_request_error", "resource_missing"), {}, NotExecuted("request")),
        (401, wrong("invalid_request_error"), {}, NotExecuted("config")),
        (400, wrong("idempotency_error"), {}, Ambiguous()),
        (409, wrong("idempotency_error"), {}, Ambiguous()),
        (409, wrong("invalid_request_error", "idempotency_key_in_use"), {}, Ambiguous()),
        (429, wrong("invalid_request_error", "lock_timeout"), {"stripe_should_retry": "true"}, Ambiguous()),
        (429, wrong("invalid_request_error", "rate_limit"), {}, NotExecuted("throttled")),
        (429, wrong("invalid_request_error"), {"stripe_rate_limited_reason": "global-rate"}, NotExecuted("throttled")),
        (429, wrong("invalid_request_error"), {}, Ambiguous()),
        (500, wrong("api_error"), {}, Ambiguous()),
        (500, wrong("api_error"), {"stripe_should_retry": "true"}, Ambiguous()),
        (500, wrong("api_error"), {"stripe_should_retry": "false"}, Ambiguous(cached=True)),
        (503, wrong("api_error"), {"idempotent_replayed": "true"}, Ambiguous(cached=True)),
        (403, "<html>", {}, NotExecuted("config")),
    ],
)  # fmt: skip
def test_errors_by_their_type(
    provider: HttpProvider, status: int, body: Any, headers: dict[str, str], outcome: Any
) -> None:
    found = said(provider, status, body, **headers)
    assert isinstance(found, Refused) if outcome is Refused else found == outcome


def test_a_decline_names_what_was_declined(provider: HttpProvider) -> None:
    body = wrong(
        "card_error", "card_declined", decline_code="lost_card", payment_intent=shown("payment_intent", id="pi_9")
    )
    assert said(provider, 402, body) == Refused(
        "pi_9", "card_declined", {"code": "card_declined", "message": "No.", "decline_code": "lost_card"}
    )


def test_what_the_user_writes_wins(tmp_path: Path) -> None:
    text = """
        [providers.pay]
        kind = "stripe"
        secret_key = { env = "STRIPE_SECRET_KEY" }
        deadline = "8s"
        lookup.agree = 3
        lookup.by_id.path = { pi_ = "/v1/payment_intents/{idem.reference}?expand%5B%5D=latest_charge" }
        outcome = [{ says = "final", when = { "/object" = "payment_intent", "/status" = "requires_capture" } }]
        [operations.pay]
        provider = "pay"
        path = "/v1/payment_intents"
        params = { type = "object" }
        body = { amount = 5 }
    """
    found = configuration(tmp_path, text)
    provider = found.providers["pay"]
    assert isinstance(provider, HttpProvider)
    contract = provider.contract
    assert (contract.deadline, contract.lookup.agree, contract.lookup.horizon) == (8, 3, 600)
    assert (contract.key.replay, contract.key.retention, contract.events_settle) == ("stored", 86400, False)
    assert provider.webhook is None
    main = provider.accounts["main"]
    assert (main.origin, main.credentials) == ("https://api.stripe.com", {"authorization": f"Bearer {KEY}"})
    held = said(provider, 200, shown("payment_intent", "requires_capture"))
    assert isinstance(held, Succeeded) and not held.interim
    paths = found.provider_settings["pay"].lookup.by_id
    assert paths is not None and isinstance(paths.path, dict)
    assert "expand" in paths.path["pi_"] and paths.path["re_"] == "/v1/refunds/{idem.reference}"


def test_several_accounts(tmp_path: Path) -> None:
    text = """
        [providers.pay]
        kind = "stripe"
        accounts.de.secret_key = { env = "STRIPE_SECRET_KEY" }
        accounts.de.headers.Stripe-Account = { env = "CONNECTED" }
        accounts.test = { origin = "http://127.0.0.1:8420", authorization = { env = "STRIPE_SECRET_KEY" } }
    """
    file = tmp_path / "idem.toml"
    file.write_text(text)
    accounts = load(file, {**ENV, "CONNECTED": "acct_1"}).providers["pay"].accounts
    assert accounts["de"].credentials == {"authorization": f"Bearer {KEY}", "stripe-account": "acct_1"}
    assert accounts["test"].credentials == {"authorization": KEY}
    assert [each.origin for each in accounts.values()] == ["https://api.stripe.com", "http://127.0.0.1:8420"]


def test_the_same_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    idem = Idem(env=ENV)
    idem.provider("stripe", kind="stripe", accounts={"main": {"secret_key": {"env": "STRIPE_SECRET_KEY"}}})
    assert idem.providers["stripe"].contract.key.replay == "stored"
    assert idem.configuration().providers["stripe"].accounts["main"].origin == "https://api.stripe.com"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "strype"', "providers.pay.kind"),
        ('kind = "stripe"', "there is no account"),
        ('kind = "stripe"\nsecret_key = "sk_live_1"', "a secret never stands in idem.toml"),
        (
            'kind = "stripe"\naccounts.a = { secret_key = { env = "A" }, authorization = { env = "X" } }',
            "there is authorization too",
        ),
        (f'kind = "stripe"\n{SECRET_KEY}accounts.a = {{}}', "nothing says whose it is"),
        (f'kind = "stripe"\n{SECRET_KEY}deployment_tag.not_in = ["/v1/a*"]', "whole segment"),
        (f'kind = "stripe"\n{SECRET_KEY}object_types.paths = {{ "v1" = "a" }}', "not the beginning"),
        (SECRET_KEY, "there is no such setting"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, text: str, said: str) -> None:
    found = findings(tmp_path, f"[providers.pay]\n{text}\n")
    assert any(said in each for each in found), found


def test_the_example_is_what_the_page_says(tmp_path: Path) -> None:
    """The page's block and the example load without a finding that the user could do something about."""
    root = Path(__file__).parents[2]
    (block,) = re.findall(r"```toml\n(environment.*?)```", (root / "docs" / "adopt" / "stripe.md").read_text(), re.S)
    for number, text in enumerate([block, (root / "examples" / "providers" / "stripe.toml").read_text()]):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        assert [str(each) for each in explain(file, ENV) if not each.where.endswith(".verified")] == []
        contract = load(file, ENV).providers["stripe"].contract
        assert contract.replays and contract.events_settle and contract.lookup.by_events


def test_config_errors_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        configuration(tmp_path, '[providers.pay]\nkind = "stripe"\nobject_types = 5\n')
