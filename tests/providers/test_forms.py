"""Bodies as forms: byte for byte what Stripe's own library sends, wherever that says what it means."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers.fix_bank import bank
from stripe._encode import _api_encode

from idem.errors import Unrenderable
from idem.outbox.domain.contract import KeyRule, ProviderRequest
from idem.outbox.providers.body_encoding import encoded
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.template import KEY_TEXT

KEY = "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"
FORM = bank(encoding="form")


def stripes_own(content: dict[str, Any]) -> bytes:
    return urlencode(list(_api_encode(content))).encode()


INTENT = {
    "amount": 1250,
    "currency": "eur",
    "confirm": True,
    "off_session": False,
    "description": "Zoë & Söhne, 10 % = ok",
    "receipt_email": None,
    "metadata": {"order": "A/7 [x]", "empty": ""},
    "payment_method_types": ["card", "sepa_debit"],
    "transfer_data": {"destination": "acct_1", "amount": None},
    "line_items": [{"price": "price_1", "quantity": 2, "adjustable": {"enabled": True}}, {"price": "price_2"}],
    "nothing": {},
    "none_of_them": [],
    "matrix": [["a", "b"], ["c"]],
}


def test_a_payment_intent_is_what_the_library_sends() -> None:
    assert encoded(INTENT, "form") == stripes_own(INTENT)
    assert b"metadata%5Bempty%5D=&" in encoded(INTENT, "form")
    assert b"receipt_email" not in encoded(INTENT, "form")


# The library writes True and None in a list as Python spells them, which no provider reads; floats have a test of ours.
SCALARS = st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.text(st.characters(codec="ascii", min_codepoint=97, max_codepoint=122), min_size=1, max_size=3)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner | st.booleans() | st.none(), max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, NESTED | st.booleans() | st.none(), max_size=4))
def test_whatever_is_nested_is_what_the_library_sends(content: dict[str, Any]) -> None:
    assert encoded(content, "form") == stripes_own(content) == encoded(content, "form")


def test_numbers_and_truth_values_are_those_of_json() -> None:
    content = {"a": [True, False], "b": [1.5, 1.0, 1e22, 1e-7], "c": 9223372036854775807, "d": -0.5}
    assert parse_qsl(encoded(content, "form").decode()) == [
        ("a[0]", "true"),
        ("a[1]", "false"),
        ("b[0]", "1.5"),
        ("b[1]", "1"),
        ("b[2]", "1e+22"),
        ("b[3]", "1e-7"),
        ("c", "9223372036854775807"),
        ("d", "-0.5"),
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([1], "not an object"),
        ("a", "not an object"),
        ({"a": [None]}, "null"),
        ({"a": {"b": [{"c": 1}, None]}}, r"a\[b\]\[1\]"),
        ({"a": float("nan")}, "not a form"),
        ({"a": float("inf")}, "not a form"),
        ({"a": "\ud800"}, "not a form"),
        ({"\ud800": "a"}, "not a form"),
        ({"a": {1, 2}}, "a set"),
        ({"a": b"x"}, "a bytes"),
        ({1: "a"}, "not text"),
        ({"a": {1: "a"}}, "not text"),
        ({"a[b]": 1, "a": {"b": 2}}, "two members"),
    ],
)
def test_what_has_no_form_is_unrenderable(content: Any, why: str) -> None:
    with pytest.raises(Unrenderable, match=why):
        encoded(content, "form")


def test_nesting_without_an_end_is_unrenderable() -> None:
    content: Any = "end"
    for _ in range(20_000):
        content = {"a": content}
    with pytest.raises(Unrenderable):
        encoded(content, "form")


def post(json: Any) -> ProviderRequest:
    return ProviderRequest("POST", "/v1/payment_intents", json)


def test_the_request_of_a_provider_that_takes_forms() -> None:
    frozen = FORM.freeze(post({"amount": 1, "metadata": {"idem": KEY_TEXT}}), KEY)
    assert frozen.body == f"amount=1&metadata%5Bidem%5D={KEY}".encode()
    assert frozen.headers["content-type"] == "application/x-www-form-urlencoded"
    assert frozen.headers["accept"] == "application/json"
    assert frozen == FORM.freeze(post({"amount": 1, "metadata": {"idem": KEY_TEXT}}), KEY)
    nothing = FORM.freeze(post(None), KEY)
    assert (nothing.body, "content-type" in nothing.headers) == (b"", False)


def test_the_key_and_the_tag_are_members_of_a_form_too() -> None:
    contract = replace(FORM.contract, key=KeyRule("body", "idempotency_key"))
    tag = DeploymentTag(at="/metadata/idem_deployment", key_at="/metadata/idem_key")
    frozen = bank(encoding="form", contract=contract, tag=tag).freeze(post({"metadata": {"order": "7"}}), KEY)
    assert parse_qsl(frozen.body.decode()) == [
        ("metadata[order]", "7"),
        ("metadata[idem_deployment]", "production"),
        ("metadata[idem_key]", KEY),
        ("idempotency_key", KEY),
    ]
