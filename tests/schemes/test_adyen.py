"""Adyen's scheme against Adyen's own library: a signature inside each item of a batch."""

import json
from typing import Any

import pytest
from Adyen.util import is_valid_hmac_notification
from fix_schemes import ADYEN, OTHER_ADYEN, batch, by_adyen, check, in_base64, notification
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.providers.schemes.adyen import AdyenSignatures

SCHEME = AdyenSignatures()
TEXT = st.text(st.characters(codec="utf-8", exclude_characters=":"), max_size=20)


def says(body: bytes, *secrets: str) -> str | None:
    return check(SCHEME, body, {}, *(secrets or (ADYEN,)))


def library(body: bytes, key: str = ADYEN) -> bool:
    try:
        return is_valid_hmac_notification(json.loads(body), key) is True
    except Exception:
        return False


def signed_over(item: dict[str, Any], text: str) -> bytes:
    """A batch of the item, signed over another text than it says."""
    signature = in_base64(bytes.fromhex(ADYEN), text.encode())
    return batch({**item, "additionalData": {"hmacSignature": signature}})


@pytest.mark.parametrize(
    ("key", "signature"),
    [
        ("DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00",
         "Ny9gS2veKo5E4w8/OL6xz1/wvT/hYkAXy1xNc/QvO4I="),
        ("44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
         "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="),
    ],
)  # fmt: skip
def test_examples_from_adyen_s_libraries_in_other_languages(key: str, signature: str) -> None:
    """Of adyen-php-api-library and adyen-ruby-api-library."""
    body = batch({**notification(), "additionalData": {"hmacSignature": signature}})
    assert says(body, key) is None
    assert says(body, key.lower()) is None
    assert says(body, OTHER_ADYEN) == "! signature"


@given(own=st.text(st.characters(codec="utf-8"), max_size=30), psp=TEXT, account=TEXT, code=TEXT, original=TEXT,
       value=st.integers(-(10**18), 10**18), success=st.sampled_from(["true", "false"]))  # fmt: skip
def test_what_the_library_signs_is_taken(
    own: str, psp: str, account: str, code: str, original: str, value: int, success: str
) -> None:
    """Anything in our own reference, colons and backslashes too: nothing is escaped."""
    item = notification(
        merchantReference=own, pspReference=psp, merchantAccountCode=account, eventCode=code, success=success,
        originalReference=original, amount={"value": value, "currency": "EUR"},
    )  # fmt: skip
    body = batch(by_adyen(item))
    assert library(body)
    assert says(body) is None


@pytest.mark.parametrize("reference", ["a:b", "a\\:b", "a\\b", ":::", "{}", "ü\n漢"])
def test_nothing_is_escaped(reference: str) -> None:
    item = notification(merchantReference=reference)
    plain = f"7914073381342284::TestMerchant:{reference}:1130:EUR:AUTHORISATION:true"
    assert says(signed_over(item, plain)) is None
    escaped = reference.replace("\\", "\\\\").replace(":", "\\:")
    if escaped != reference:
        assert says(signed_over(item, plain.replace(reference, escaped))) == "! signature"


@given(data=st.data())
def test_what_the_library_refuses_is_refused(data: st.DataObject) -> None:
    """One member of a signed item gets another value, or none."""
    item = by_adyen(notification(originalReference="O"))
    name = data.draw(st.sampled_from(sorted(item)))
    value = data.draw(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.just({}), st.just([]),
                  st.just({"value": 1130}), st.just({"currency": "EUR"}), st.just({"hmacSignature": ""}),
                  st.just({"hmacSignature": None}), st.just({"value": "1130", "currency": "EUR"}))
    )  # fmt: skip
    changed = {k: v for k, v in item.items() if k != name} if value is None else {**item, name: value}
    body = batch(changed)
    refused = says(body) is not None
    assert refused or library(body)


@pytest.mark.parametrize(
    "change",
    [
        {"success": "false"},
        {"success": True},
        {"eventCode": "REFUND"},
        {"merchantReference": "another"},
        {"pspReference": "another"},
        {"amount": {"currency": "EUR", "value": 1}},
        {"amount": {"currency": "EUR", "value": "1130"}},
        {"amount": {"currency": "EUR", "value": 1130.0}},
        {"amount": None},
        {"merchantAccountCode": None},
    ],
)
def test_every_signed_value_counts(change: dict[str, Any]) -> None:
    assert str(says(batch({**by_adyen(notification()), **change}))) in ("! signature", "! malformed")


def test_trap_every_item_of_a_batch_is_verified() -> None:
    """The library looks at the first alone, so that anything could stand behind a genuine one."""
    good, forged = by_adyen(notification()), by_adyen(notification(pspReference="2"), OTHER_ADYEN)
    unsigned = notification(pspReference="3")
    assert library(batch(good, forged)) and library(batch(good, unsigned))
    assert says(batch(good, forged)) == "! signature"
    assert says(batch(forged, good)) == "! signature"
    assert says(batch(good, unsigned)) == "! missing"
    assert says(batch(good, {**good, "success": "false"})) == "! signature"
    assert says(batch(good, by_adyen(notification(pspReference="2")))) is None
    assert says(batch(good, forged), ADYEN, OTHER_ADYEN) is None


def test_an_old_and_a_new_key_in_one_batch() -> None:
    """Adyen: what was queued before the key was changed is still signed with the old one."""
    body = batch(by_adyen(notification()), by_adyen(notification(pspReference="2"), OTHER_ADYEN))
    assert says(body, ADYEN, OTHER_ADYEN) is None
    assert says(body, OTHER_ADYEN) == "! signature"


def test_trap_a_colon_moves_no_value_into_the_next() -> None:
    """The library takes both readings of one signed text: here the second says that another merchant was paid."""
    first = by_adyen(notification(originalReference="", merchantReference="Other:ours"))
    moved = {**first, "merchantAccountCode": "TestMerchant:Other", "merchantReference": "ours"}
    assert library(batch(first)) and library(batch(moved))
    assert says(batch(first)) is None
    assert says(batch(moved)) == "! malformed"
    moved = {**first, "pspReference": "7914073381342284:", "originalReference": "TestMerchant",
             "merchantAccountCode": "Other", "merchantReference": "ours"}  # fmt: skip
    assert library(batch(moved))
    assert says(batch(moved)) == "! malformed"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"notificationItems": []}',
        b'{"notificationItems": {}}',
        b'{"notificationItems": [1]}',
        b'{"notificationItems": [{}]}',
        b'{"notificationItems": [{"NotificationRequestItem": []}]}',
        b'{"notificationItems": [{"NotificationRequestItem": {"additionalData": []}}]}',
    ],
)
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    assert str(says(body)) in ("! malformed", "! missing")


@pytest.mark.parametrize(
    "twice", ['"success":"false",', '"pspReference":"x",', '"additionalData":{"hmacSignature":"x"},']
)
def test_a_member_said_twice_is_refused(twice: str) -> None:
    """Which of them was signed, and which will be read?"""
    body = batch(by_adyen(notification())).decode()
    assert says(body.replace('"eventDate"', twice + ' "eventDate"').encode()) in ("! malformed", "! missing")
    doubled = body.replace('{"live"', '{"notificationItems":[],"live"')
    assert says(doubled.encode()) == "! malformed"


def test_text_that_is_none() -> None:
    body = batch(by_adyen(notification())).replace(b"TestPayment", b"\\ud800")
    assert says(body) == "! malformed"


def test_escapes_and_spacing_are_not_signed() -> None:
    """The values are, so another spelling of the same text is the same notification."""
    body = batch(by_adyen(notification(merchantReference="ü")))
    assert says(body) is None
    assert says(json.dumps(json.loads(body), ensure_ascii=False, indent=2).encode()) is None
