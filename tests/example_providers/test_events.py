"""Webhooks by the contracts of examples/providers: signed as the providers sign, and what they say."""

import json
from dataclasses import dataclass
from typing import Any

import gocardless_pro.webhooks
import pytest
from Adyen.util import is_valid_hmac_notification
from example_providers.fix_examples import (
    ACTION,
    ENV,
    KEY,
    PAY,
    PM,
    PSP,
    RECORDED,
    REFUND,
    SQUARE,
    SQUARE_REFUND,
    bare,
    recorded,
)
from fix_schemes import batch, by_adyen, in_base64, in_hex, raw
from square.utils.webhooks_helper import verify_signature

from idem.outbox.domain.outcomes import Proof
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.webhook import Event, Signed, Unverified, verify
from idem.outcomes import Pending, Refused, Succeeded

NOW = 1796000000.0


@dataclass(frozen=True)
class Says:
    """What an event comes to. `wanted`: it is about a call of this kind; `later`: a later fact, no proof."""

    said: Proof | None = None
    reference: str | None = None
    wanted: bool = True
    later: bool = False
    key: str | None = KEY


UNWANTED = Says(wanted=False)

SAID: dict[tuple[str, str], list[Says]] = {
    ("adyen", "authorised"): [Says(Succeeded(PSP, "AUTHORISATION"), PSP)],
    ("adyen", "refused"): [Says(Refused(PSP, "AUTHORISATION"), PSP)],
    # A refund may carry the payment's own reference: it is no end of the payment.
    ("adyen", "refunded"): [UNWANTED],
    ("adyen", "capture_failed"): [Says(None, PSP, later=True)],
    ("adyen", "report"): [UNWANTED],
    ("adyen", "batch"): [
        Says(Succeeded(PSP, "AUTHORISATION"), PSP),
        Says(Refused("ZZ6HT9CRT65ZGN82", "AUTHORISATION"), "ZZ6HT9CRT65ZGN82", key="somebody-else"),
    ],
    ("adyen_refunds", "refunded"): [Says(Succeeded(REFUND, "REFUND"), REFUND)],
    ("adyen_refunds", "refund_not_done"): [Says(Refused(REFUND, "REFUND"), REFUND)],
    ("adyen_refunds", "refund_failed"): [Says(Refused(REFUND, "REFUND_FAILED"), REFUND)],
    ("adyen_refunds", "authorised"): [UNWANTED],
    ("square", "completed"): [Says(Succeeded(SQUARE, "COMPLETED"), SQUARE)],
    ("square", "pending"): [Says(Pending(SQUARE, "PENDING"), SQUARE)],
    ("square", "failed"): [Says(Refused(SQUARE, "FAILED"), SQUARE)],
    ("square", "terminal"): [Says(Succeeded("till", "COMPLETED"), "till", key=None)],
    ("square", "refund_completed"): [UNWANTED],
    ("square_refunds", "refund_completed"): [Says(Succeeded(SQUARE_REFUND, "COMPLETED"), SQUARE_REFUND)],
    ("checkout", "approved"): [Says(Succeeded(PAY, "payment_approved"), PAY)],
    ("checkout", "captured"): [Says(Succeeded(PAY, "payment_captured"), PAY)],
    ("checkout", "pending"): [Says(Pending(PAY, "payment_pending"), PAY)],
    ("checkout", "declined"): [Says(Refused(PAY, "payment_declined"), PAY)],
    # Its key is that of whoever refunded: the payment is known by its id.
    ("checkout", "refunded"): [Says(None, PAY, later=True, key=None)],
    ("checkout", "dispute"): [UNWANTED],
    ("checkout_refunds", "refunded"): [Says(Succeeded(ACTION, "payment_refunded"), ACTION)],
    ("checkout_refunds", "refund_declined"): [Says(Refused(ACTION, "payment_refund_declined"), ACTION)],
    # They name the payment and do not show it: it is fetched.
    ("gocardless", "confirmed"): [Says(None, PM)],
    ("gocardless", "batch"): [Says(None, PM), Says(None, "PM9", key="somebody-else")],
    ("gocardless", "mandate"): [UNWANTED],
}
SECRETS = {
    "adyen": "ADYEN_HMAC_KEY",
    "adyen_refunds": "ADYEN_REFUNDS_HMAC_KEY",
    "checkout": "CHECKOUT_SIGNATURE_KEY",
    "checkout_refunds": "CHECKOUT_REFUNDS_SIGNATURE_KEY",
    "gocardless": "GOCARDLESS_WEBHOOK_SECRET",
    "square": "SQUARE_SIGNATURE_KEY",
    "square_refunds": "SQUARE_REFUNDS_SIGNATURE_KEY",
}


def signed(provider: str, event: Any, secret: str) -> tuple[bytes, dict[str, str]]:
    """A delivery of this event, and its headers. Where there is an official library, it takes it too."""
    if provider.startswith("adyen"):
        body = batch(*(by_adyen(item, secret) for item in event))
        assert is_valid_hmac_notification(json.loads(body), secret)
        return body, {}
    if provider == "gocardless":
        body = json.dumps({"events": event, "meta": {"webhook_id": "WB000000000001"}}).encode()
        signature = in_hex(secret, body)
        assert gocardless_pro.webhooks.parse(body, secret, signature)
        return body, {"webhook-signature": signature}
    body = json.dumps(event).encode()
    if provider.startswith("square"):
        url = f"https://hooks.shop.example/webhooks/{provider}"
        signature = in_base64(secret, url.encode() + body)
        assert verify_signature(
            request_body=body.decode(), signature_header=signature, signature_key=secret, notification_url=url
        )
        return body, {"x-square-hmacsha256-signature": signature}
    return body, {"cko-signature": in_hex(secret, body)}


def verified(known: Provider, body: bytes, headers: dict[str, str]) -> None:
    webhook = known.webhook
    assert webhook is not None
    ((account, secrets),) = webhook.secrets.items()
    verify(webhook.scheme, Signed(raw(headers), body, webhook.urls.get(account)), secrets, NOW)


@pytest.mark.parametrize(("provider", "shape"), SAID)
def test_an_event(providers: dict[str, Provider], provider: str, shape: str) -> None:
    known, secret = providers[provider], ENV[SECRETS[provider]]
    body, headers = signed(provider, recorded(provider, "events", shape), secret)
    verified(known, body, headers)
    with pytest.raises(Unverified):
        verified(known, body.replace(b"EUR", b"USD") if provider.startswith("adyen") else body + b" ", headers)
    events = known.read_events(body)
    assert events is not None and len(events) == len(SAID[provider, shape])
    assert len({event.id for event in events}) == len(events) and None not in {event.id for event in events}
    for event, wanted in zip(events, SAID[provider, shape], strict=True):
        assert event.wanted is wanted.wanted, event
        if wanted.wanted:
            compare(event, wanted)


def compare(event: Event, wanted: Says) -> None:
    assert bare(event.said) == wanted.said
    assert (event.reference, event.later, event.key) == (wanted.reference, wanted.later, wanted.key)


def test_every_recorded_event_is_read() -> None:
    there = {
        (path.parent.name, each) for path in RECORDED.glob("*/events.json") for each in json.loads(path.read_text())
    }
    assert there == {(provider.partition("_")[0], shape) for provider, shape in SAID}


@pytest.mark.parametrize("provider", SECRETS)
def test_another_secret_signs_nothing(providers: dict[str, Provider], provider: str) -> None:
    shape = next(shape for name, shape in SAID if name == provider)
    for name, variable in SECRETS.items():
        if ENV[variable] == ENV[SECRETS[provider]] or name.partition("_")[0] != provider.partition("_")[0]:
            continue
        body, headers = signed(name, recorded(provider, "events", shape), ENV[variable])
        with pytest.raises(Unverified):
            verified(providers[provider], body, headers)


def test_the_old_key_of_adyen_is_still_taken(providers: dict[str, Provider]) -> None:
    body, headers = signed("adyen", recorded("adyen", "events", "authorised"), ENV["ADYEN_HMAC_KEY_BEFORE"])
    verified(providers["adyen"], body, headers)


def test_what_is_believed(providers: dict[str, Provider]) -> None:
    rules = {name: provider.contract.event_rule for name, provider in providers.items() if provider.webhook is not None}
    assert {name for name, rule in rules.items() if rule.fetch} == {"gocardless"}
    assert all(rule.horizon is None for rule in rules.values())
    assert providers["paypal_orders"].webhook is None is providers["paypal_payments"].webhook
