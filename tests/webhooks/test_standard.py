"""The scheme against the official library: what it signs is taken, what it refuses is refused."""

import base64
import hashlib
import hmac
import json
import time

import pytest
from fix_webhooks import FIRST, OTHERS, SCHEME, SECOND, signed
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Official
from standardwebhooks import WebhookVerificationError

from idem.outbox.domain.webhook import Signed, Unverified, verify

NOW = float(int(time.time()))
BODY = b'{"type": "payment.succeeded", "data": {"id": "pay_1"}}'


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()]


def check(body: bytes, headers: dict[str, str], *secrets: str, now: float = NOW) -> str | None:
    """The event's id, or the reason why it is refused."""
    keys = [SCHEME.parse_secret(each) for each in secrets or (FIRST,)]
    try:
        return verify(SCHEME, Signed(raw(headers), body), keys, now)
    except Unverified as error:
        return f"! {error.reason}"


def by_library(body: bytes, headers: dict[str, str]) -> bool:
    try:
        Official(FIRST).verify(body, headers, json_parse=False)
    except (WebhookVerificationError, ValueError):  # its traps: no comma, no UTF-8
        return False
    return True


@given(body=st.text(), id=st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1))
def test_what_the_library_signs_is_taken(body: str, id: str) -> None:
    content = body.encode()
    assert check(content, signed(content, id, at=NOW)) == id


@given(st.data())
def test_what_the_library_refuses_is_refused(data: st.DataObject) -> None:
    """One header of a good delivery is changed; where the library says no, so do we, and never with another error."""
    now = float(int(time.time()))  # the library looks at the clock itself
    headers = signed(BODY, "evt_1", at=now)
    name = data.draw(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]))
    good = headers[name]
    headers[name] = data.draw(
        st.one_of(
            st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=60),
            st.sampled_from([f"{good} x", f"x {good}", f" {good}", f"{good}=", good[:-1], good.upper(), f"{good},a",
                             good.replace("v1", "v1a"), f"v1, {good}", f"{good}  {good}", f"v2,AAAA {good}"]),
        )
    )  # fmt: skip
    refused = str(check(BODY, headers, now=now)).startswith("! ")
    assert refused or by_library(BODY, headers)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\\u00FC\\u00fc",  "b" :1 ,"b": 1}',
        '{"said": "🎉 漢字"}'.encode(),
        b'\xef\xbb\xbf{"with": "a byte-order mark"}',
        b"",
        b"not json at all",
    ],
)
def test_ib_097_ib_098_the_bytes_are_verified_as_they_came(body: bytes) -> None:
    """Escapes, spacing, a member twice, emoji: nothing is parsed, decoded or written anew before."""
    headers = signed(body, "evt_1", at=NOW)
    assert check(body, headers) == "evt_1"
    assert check(body + b" ", headers) == "! signature"
    if b"{" in body:
        again = json.dumps(json.loads(body.decode("utf-8-sig"))).encode()
        assert again == body or check(again, headers) == "! signature"


def test_a_body_that_is_no_text_is_verified_too() -> None:
    """The library raises UnicodeDecodeError here, which would be a 500."""
    body = b"\xff\x00\xfe"
    key = SCHEME.parse_secret(FIRST)
    made = base64.b64encode(hmac.digest(key, b"evt_1.%d." % NOW + body, hashlib.sha256)).decode()
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(int(NOW)), "webhook-signature": f"v1,{made}"}
    assert check(body, headers) == "evt_1"


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_ib_103_a_secret_is_changed_without_a_gap(order: tuple[str, str]) -> None:
    """Two active secrets, two signatures in either order; a retired one alone fits nothing."""
    headers = signed(BODY, "evt_1", key=order[0], at=NOW)
    headers["webhook-signature"] += " " + signed(BODY, "evt_1", key=order[1], at=NOW)["webhook-signature"]
    assert check(BODY, headers, FIRST, SECOND) == "evt_1"
    assert check(BODY, headers, FIRST) == "evt_1"
    assert check(BODY, headers, SECOND) == "evt_1"
    assert check(BODY, signed(BODY, "evt_1", key=SECOND, at=NOW), FIRST) == "! signature"
    assert check(BODY, headers, OTHERS) == "! signature"


@pytest.mark.parametrize("away", [0, 299, 300, -299, -300])
def test_a_time_stamp_within_five_minutes(away: int) -> None:
    assert check(BODY, signed(BODY, "evt_1", at=NOW + away)) == "evt_1"


@pytest.mark.parametrize("away", [301, -301, 3600, -86400])
def test_a_time_stamp_outside_five_minutes(away: int) -> None:
    headers = signed(BODY, "evt_1", at=NOW + away)
    assert check(BODY, headers) == "! timestamp"
    assert abs(away) == 301 or not by_library(BODY, headers)  # its clock goes on meanwhile


@pytest.mark.parametrize(
    "stamp",
    [
        "123abc", "1e9", "-1", " {now}", "{now} ", "+{now}", "{now}.0", "{now}000", "0{now}", "1" * 20, "", "0", "nan",
        "inf", "0x65", "1_700_000_000", "١٧٠٠٠٠٠٠٠٠",
    ],
)  # fmt: skip
def test_ib_108_only_whole_seconds_are_a_time_stamp(stamp: str) -> None:
    """Signed over the very text, so that nothing but its form is wrong."""
    text = stamp.format(now=int(NOW))
    key = SCHEME.parse_secret(FIRST)
    made = base64.b64encode(hmac.digest(key, b"evt_1." + text.encode() + b"." + BODY, hashlib.sha256)).decode()
    headers = {"webhook-id": "evt_1", "webhook-timestamp": text, "webhook-signature": f"v1,{made}"}
    assert check(BODY, headers) in ("! timestamp", "! missing")


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_missing_or_there_twice(name: str) -> None:
    headers = raw(signed(BODY, "evt_1", at=NOW))
    keys = [SCHEME.parse_secret(FIRST)]
    without = [each for each in headers if each[0] != name.encode()]
    with pytest.raises(Unverified, match="missing"):
        verify(SCHEME, Signed(without, BODY), keys, NOW)
    with pytest.raises(Unverified, match="more than once"):
        verify(SCHEME, Signed([*headers, *(each for each in headers if each[0] == name.encode())], BODY), keys, NOW)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c2VjcmV0", "begins with whsec_"),
        ("whsk_" + "A" * 44, "not with whsk_"),
        ("v1,AAAA", "begins with whsec_"),
        ("sk_live_abc", "begins with whsec_"),
        ("whsec_", "0 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "23 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "65 bytes"),
        ("whsec_not base64!", "not base64"),
        ("whsec_" + base64.b64encode(b"x" * 32).decode() + "=", "not base64"),
    ],
)
def test_ib_101_a_secret_of_another_kind(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        SCHEME.parse_secret(text)
    assert text[6:] not in str(raised.value) or not text[6:]


@pytest.mark.parametrize("length", [24, 32, 64])
def test_a_secret_of_every_length_that_the_specification_allows(length: int) -> None:
    text = "whsec_" + base64.b64encode(b"k" * length).decode()
    for written in (text, text.rstrip("=")):
        assert check(BODY, signed(BODY, "evt_1", key=written, at=NOW), written) == "evt_1"


@pytest.mark.quick
@pytest.mark.process
def test_the_library_is_not_loaded_by_the_endpoint() -> None:
    """It is the oracle of these tests, and no dependency."""
    import subprocess
    import sys

    code = "import sys, idem.reconciler.webhooks; sys.exit('standardwebhooks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_id_that_is_no_ascii() -> None:
    """Signed as its bytes; shown as the text that they are."""
    assert check(BODY, signed(BODY, "ereignis-ü", at=NOW)) == "ereignis-ü"
