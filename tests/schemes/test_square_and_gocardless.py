"""Square and GoCardless against their own libraries."""

import json

import pytest
from fix_schemes import OTHER_PLAIN, PLAIN, URL, check, in_base64, in_hex
from gocardless_pro import webhooks as gocardless
from hypothesis import given
from hypothesis import strategies as st
from square.utils.webhooks_helper import verify_signature

from idem.outbox.providers.schemes.gocardless import GoCardlessSignatures
from idem.outbox.providers.schemes.square import SquareSignatures

SQUARE, GOCARDLESS = SquareSignatures(), GoCardlessSignatures()
BODY = '{"merchant_id":"M","type":"payment.updated","event_id":"e-1","data":{"object":{"text":"ü 漢"}}}'
BATCH = json.dumps({"events": [{"id": "EV1", "resource_type": "payments", "action": "confirmed"}]}).encode()
SIGNATURES = st.one_of(st.text(max_size=60), st.binary(max_size=32).map(lambda raw: raw.hex()))


def by_square(body: str, signature: str, url: str = URL, key: str = PLAIN) -> bool:
    return verify_signature(request_body=body, signature_header=signature, signature_key=key, notification_url=url)


def square(body: str, signature: str, url: str | None = URL, key: str = PLAIN) -> bool:
    return check(SQUARE, body.encode(), {"x-square-hmacsha256-signature": signature}, key, url=url) is None


@given(body=st.text(st.characters(codec="utf-8"), min_size=1), url=st.sampled_from([URL, "https://a.example/", "x"]))
def test_square_agrees_about_a_genuine_delivery(body: str, url: str) -> None:
    signature = in_base64(PLAIN, (url + body).encode())
    assert by_square(body, signature, url)
    assert square(body, signature, url)


@given(data=st.data())
def test_what_square_s_library_refuses_is_refused(data: st.DataObject) -> None:
    good = in_base64(PLAIN, (URL + BODY).encode())
    odd = st.sampled_from([good, good[:-1], good + "=", f" {good}", good.swapcase(), f"{good},{good}", ""])
    signature = data.draw(st.one_of(SIGNATURES, odd))
    body = data.draw(st.sampled_from([BODY, BODY + " ", ""]))
    url = data.draw(st.sampled_from([URL, URL + "/", URL.replace("https", "http"), URL.upper()]))
    assert square(body, signature, url) == by_square(body, signature, url)


def test_square_signs_the_address() -> None:
    """An event for one endpoint is none at another, whatever the secret."""
    signature = in_base64(PLAIN, (URL + BODY).encode())
    assert not square(BODY, signature, URL + "/other")
    assert not square(BODY, signature, None)
    assert not square(BODY, in_base64(PLAIN, BODY.encode()), None)


def test_an_empty_body_is_refused_as_by_square_s_library() -> None:
    signature = in_base64(PLAIN, URL.encode())
    assert not by_square("", signature)
    assert not square("", signature)


def by_gocardless(body: bytes, signature: str) -> bool:
    try:
        gocardless.parse(body, PLAIN, signature)
    except Exception:
        return False
    return True


def test_what_gocardless_accepts_is_accepted() -> None:
    signature = in_hex(PLAIN, BATCH)
    assert by_gocardless(BATCH, signature)
    assert check(GOCARDLESS, BATCH, {"Webhook-Signature": signature}, PLAIN) is None
    assert check(GOCARDLESS, BATCH, {"Webhook-Signature": signature}, OTHER_PLAIN) == "! signature"


@given(data=st.data())
def test_what_gocardless_refuses_is_refused(data: st.DataObject) -> None:
    good = in_hex(PLAIN, BATCH)
    odd = st.sampled_from([good, good.upper(), good[:-1], good + "0", f" {good}", f"sha256={good}", "ü" * 64, ""])
    signature = data.draw(st.one_of(SIGNATURES, odd))
    body = data.draw(st.sampled_from([BATCH, BATCH + b" "]))
    taken = check(GOCARDLESS, body, {"webhook-signature": signature}, PLAIN) is None
    assert taken == by_gocardless(body, signature)


@pytest.mark.parametrize("signature", ["ü", "\udcff" * 64])
def test_trap_a_signature_that_is_no_ascii(signature: str) -> None:
    """The library raises TypeError there, which would be a 500."""
    with pytest.raises(TypeError):
        gocardless.parse(BATCH, PLAIN, signature)
    assert check(GOCARDLESS, BATCH, {"webhook-signature": signature}, PLAIN) == "! signature"
