"""The requests that leave for Stripe, beside those that its own library sends for the same order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import respx
import stripe
from fix_stripe import KEY, configured

from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.domain.provider import Provider
from idem.sending import Question

PROVIDER_KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
VERSION = "2026-10-28.endive"
TAG = {"idem_deployment": "test", "idem_key": PROVIDER_KEY}


@pytest.fixture
def theirs() -> Iterator[respx.Route]:
    """What Stripe's library sends."""
    with respx.mock:
        yield respx.route().respond(json={"id": "pi_1", "object": "payment_intent"})


def sdk() -> Any:
    sending = stripe.HTTPXClient(allow_sync_methods=True)
    return stripe.StripeClient(KEY, http_client=sending, max_network_retries=0, stripe_version=VERSION).v1


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return configured(tmp_path, "http://127.0.0.1:9").providers["stripe"]


ORDERS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "payment_intents",
        "/v1/payment_intents",
        {
            "amount": 1250,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "payment_method_types": ["card", "sepa_debit"],
            "shipping": {"name": "Zoë & Søn", "address": {"line1": "1 Rue d'École", "city": "Paris"}},
            "metadata": {"order": "A/7 ü"},
        },
    ),
    ("refunds", "/v1/refunds", {"payment_intent": "pi_1", "amount": 200, "metadata": {}}),
    ("payouts", "/v1/payouts", {"amount": 5, "currency": "eur", "metadata": {}}),
    ("transfers", "/v1/transfers", {"amount": 5, "currency": "eur", "destination": "acct_1", "metadata": {}}),
    ("customers", "/v1/customers", {"email": "a+b@shop.example", "metadata": {}}),
    ("setup_intents", "/v1/setup_intents", {"usage": "off_session", "metadata": {}}),
]


@pytest.mark.filterwarnings("ignore:Use .content:DeprecationWarning")
@pytest.mark.parametrize(("service", "path", "params"), ORDERS, ids=[each[0] for each in ORDERS])
def test_a_call_is_what_the_library_sends(
    theirs: respx.Route, provider: Provider, service: str, path: str, params: dict[str, Any]
) -> None:
    given = {name: value for name, value in params.items() if value != {}}
    frozen = provider.freeze(ProviderRequest("POST", path, json=given), PROVIDER_KEY)
    tagged = {**params, "metadata": {**params["metadata"], **TAG}}
    getattr(sdk(), service).create(tagged, {"idempotency_key": PROVIDER_KEY})
    sent = theirs.calls.last.request
    assert (frozen.method, frozen.path) == (sent.method, sent.url.raw_path.decode())
    assert parse_qsl(frozen.body.decode(), strict_parsing=True) == parse_qsl(sent.content.decode(), strict_parsing=True)
    ours = {**frozen.headers, **provider.accounts["main"].credentials}
    for name in ("content-type", "idempotency-key", "stripe-version", "authorization"):
        assert ours[name] == sent.headers[name], name


def test_an_act_carries_no_metadata(theirs: respx.Route, provider: Provider) -> None:
    """Stripe refuses them there, and where it does not they would write over those of the payment itself."""
    for act in ("confirm", "capture", "cancel"):
        frozen = provider.freeze(ProviderRequest("POST", f"/v1/payment_intents/pi_1/{act}"), PROVIDER_KEY)
        getattr(sdk().payment_intents, act)("pi_1", {}, {"idempotency_key": PROVIDER_KEY})
        sent = theirs.calls.last.request
        assert (frozen.path, frozen.body) == (sent.url.path, sent.content)
        assert frozen.headers["idempotency-key"] == PROVIDER_KEY


def test_lookups_carry_the_version_and_no_key(provider: Provider) -> None:
    by_id = provider.questions(Question(PROVIDER_KEY, "pi_1", False, 1.0e9 * 1.79, "POST", "/v1/payment_intents"))[0]
    assert (by_id.method, by_id.path, by_id.headers["stripe-version"]) == ("GET", "/v1/payment_intents/pi_1", VERSION)
    assert "idempotency-key" not in by_id.headers
