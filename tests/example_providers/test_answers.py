"""What a write was answered, by the contracts of examples/providers: shape by shape."""

import json

import pytest
from example_providers.fix_examples import (
    ACTION,
    KEY,
    NAMES,
    ORDER,
    PAY,
    PAYPAL_REFUND,
    PM,
    PSP,
    RECORDED,
    REFUND,
    SQUARE,
    SQUARE_REFUND,
    bare,
    response,
)

from idem.outbox.config import Configuration
from idem.outbox.domain.contract import Response
from idem.outbox.domain.provider import Provider
from idem.outcomes import Ambiguous, NotExecuted, Outcome, Pending, Refused, Succeeded

CONFIG, REQUEST = NotExecuted("config"), NotExecuted("request")
USUAL = {"invalid": REQUEST, "unauthorised": CONFIG, "not_found": REQUEST, "internal": Ambiguous()}
LIMITING = {**USUAL, "limited": Ambiguous()}

SAID: dict[str, dict[str, Outcome]] = {
    "adyen": {
        "authorised": Succeeded(PSP, "Authorised"),
        "refused": Refused(PSP, "Refused"),
        "pending": Pending(PSP, "Pending"),
        "received": Pending(PSP, "Received"),
        "redirect": Succeeded(None, "RedirectShopper", interim=True),
        # Whoever reads these as a refusal of the request gives up a payment that was made.
        "in_progress_422": Ambiguous(),
        "in_progress_409": Ambiguous(),
        "store_unavailable": Ambiguous(),
        **USUAL,
    },
    "adyen_refunds": {"refund_received": Pending(REFUND, "received"), "in_progress_422": Ambiguous()},
    "paypal_orders": {
        "completed": Succeeded(ORDER, "COMPLETED"),
        "replayed": Succeeded(ORDER, "COMPLETED"),
        # The order is COMPLETED in both.
        "capture_pending": Pending(ORDER, "COMPLETED"),
        "capture_declined": Refused(ORDER, "DECLINED"),
        "payer_action": Succeeded(ORDER, "PAYER_ACTION_REQUIRED", interim=True),
        "created": Succeeded(ORDER, "CREATED", interim=True),
        "in_progress": Ambiguous(),
        "duplicate_request": Ambiguous(),
        "id_used": Ambiguous(),
        "duplicate_invoice": Ambiguous(),
        "instrument_declined": Refused(None),
        **LIMITING,
    },
    "paypal_payments": {
        "refund_completed": Succeeded(PAYPAL_REFUND, "COMPLETED"),
        "refund_replayed": Succeeded(PAYPAL_REFUND, "COMPLETED"),
        "refund_pending": Pending(PAYPAL_REFUND, "PENDING"),
        "refund_failed": Refused(PAYPAL_REFUND, "FAILED"),
        "fully_refunded": Ambiguous(),
        "no_funds": Refused(None),
        "in_progress": Ambiguous(),
        "internal": Ambiguous(),
    },
    "square": {
        "completed": Succeeded(SQUARE, "COMPLETED"),
        "pending": Pending(SQUARE, "PENDING"),
        "failed": Refused(SQUARE, None),
        "declined": Refused(None),
        "key_reused": Ambiguous(),
        **LIMITING,
        "unavailable": Ambiguous(),
    },
    "square_refunds": {
        "refund_pending": Pending(SQUARE_REFUND, "PENDING"),
        "refund_completed": Succeeded(SQUARE_REFUND, "COMPLETED"),
        "refund_rejected": Refused(SQUARE_REFUND, "REJECTED"),
        "refund_already_pending": Ambiguous(),
        "refund_declined": Refused(None),
    },
    "checkout": {
        "authorized": Succeeded(PAY, "Authorized"),
        "captured": Succeeded(PAY, "Captured"),
        "pending": Pending(PAY, "Pending"),
        "declined": Refused(PAY, "Declined"),
        **LIMITING,
        "not_found": CONFIG,
        "bad_gateway": Ambiguous(),
    },
    "checkout_refunds": {"refund_accepted": Pending(ACTION), "invalid": REQUEST, "internal": Ambiguous()},
    "gocardless": {
        "pending_submission": Pending(PM, "pending_submission"),
        "confirmed": Succeeded(PM, "confirmed"),
        # The proof that the first request did it; which status it has, the payment itself says.
        "created_already": Pending(PM, "idempotent_creation_conflict"),
        "other_conflict": Ambiguous(),
        "mandate_is_inactive": Refused(None),
        **LIMITING,
    },
}
FIELDS = {
    ("adyen", "refused"): {"refusal": "Not enough balance"},
    ("paypal_orders", "instrument_declined"): {
        "code": "INSTRUMENT_DECLINED",
        "message": "The requested action could not be performed.",
    },
    ("square", "failed"): {"code": "CARD_DECLINED", "message": "Authorization error: 'CARD_DECLINED'"},
    ("checkout", "declined"): {"response_code": "20005"},
    ("gocardless", "mandate_is_inactive"): {"code": "mandate_is_inactive", "message": "Something is wrong"},
}
PAGES = [
    Response(status, {"content-type": "text/html"}, b"<html><h1>Bad gateway</h1></html>")
    for status in (200, 201, 404, 502)
]


@pytest.mark.parametrize(
    ("provider", "shape"), [(provider, shape) for provider, said in SAID.items() for shape in said]
)
def test_an_answer(providers: dict[str, Provider], provider: str, shape: str) -> None:
    outcome, seen = providers[provider].classify(response(provider, "answers", shape))
    assert bare(outcome) == SAID[provider][shape], seen
    if (wanted := FIELDS.get((provider, shape))) is not None:
        assert isinstance(outcome, Refused) and dict(outcome.fields) == wanted


def test_every_recorded_answer_is_read() -> None:
    for name in NAMES:
        there = set(json.loads((RECORDED / name / "answers.json").read_text()))
        read = {shape for provider, said in SAID.items() if provider.partition("_")[0] == name for shape in said}
        assert read == there


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.status))
@pytest.mark.parametrize("provider", SAID)
def test_a_proxys_page_proves_nothing(providers: dict[str, Provider], provider: str, page: Response) -> None:
    outcome, _ = providers[provider].classify(page)
    assert outcome == (CONFIG if page.status == 404 else Ambiguous())


@pytest.mark.parametrize("provider", SAID)
def test_whatever_is_cut_short_proves_nothing(providers: dict[str, Provider], provider: str) -> None:
    for shape in SAID[provider]:
        whole = response(provider, "answers", shape)
        half = Response(whole.status, whole.headers, whole.body[: len(whole.body) // 2], complete=False)
        assert providers[provider].classify(half)[0] == Ambiguous()


def test_the_key_is_in_every_request(examples: dict[str, Configuration], providers: dict[str, Provider]) -> None:
    made = {}
    for example in examples.values():
        for name, operation in example.operations.items():
            frozen = providers[operation.provider].freeze(operation.request(PARAMS[operation.provider]), KEY)
            carried = frozen.body.decode() + " ".join(frozen.headers.values())
            assert carried.count(KEY) == CARRIED[operation.provider], (name, frozen)
            operation.validate(PARAMS[operation.provider])
            made[operation.provider] = frozen
    assert made.keys() == SAID.keys()
    assert json.loads(made["gocardless"].body)["payments"]["metadata"] == {
        "idem_deployment": "production",
        "idem_key": KEY,
    }
    assert made["paypal_orders"].headers["prefer"] == "return=representation"
    assert made["checkout_refunds"].path == "/payments/pay_1/refunds"
    assert "metadata" not in json.loads(made["checkout_refunds"].body)


PARAMS = {
    "adyen": {"amount": 1130, "currency": "EUR", "token": "t", "shopper": "s", "order": "A-7"},
    "adyen_refunds": {"payment": PSP, "amount": 1130, "currency": "EUR"},
    "paypal_orders": {"amount": "12.50", "currency": "EUR", "order": "A-7", "vault": "v"},
    "paypal_payments": {"capture": "3C679366HH908993F", "amount": "12.50", "currency": "EUR"},
    "square": {"amount": 1250, "currency": "EUR", "card": "ccof:x", "customer": "c"},
    "square_refunds": {"payment": SQUARE, "amount": 1250, "currency": "EUR"},
    "checkout": {"amount": 6540, "currency": "EUR", "instrument": "src_1", "order": "A-7"},
    "checkout_refunds": {"payment": "pay_1", "amount": 1000},
    "gocardless": {"amount": 1250, "currency": "EUR", "mandate": "MD000000000001", "order": "A-7"},
}
CARRIED = {**dict.fromkeys(PARAMS, 2), "checkout": 3}
"""Where a provider has room for it: the key's own place, and a reference or metadata that comes back."""
