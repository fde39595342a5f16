"""What holds of every scheme: only `Unverified` is raised, every secret is tried, and the bytes are what counts."""

import base64
import hmac
import json
from typing import Any

import pytest
from fix_schemes import ADYEN, KINDS, NOW, PUBLIC, Kind, batch, by_adyen, notification, raw
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.domain.webhook import Signed, Unverified, verify
from idem.outbox.providers.schemes import deliveries

EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
IN_HEADERS = pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: kind.name)
TIMED = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name in ("standard", "ed25519", "timed")], ids=lambda kind: kind.name
)

NAMES = sorted({name for kind in KINDS for name in kind.headers} | {"x-github-delivery", "Webhook-Id", "x-other"})
ODD = [
    b"t=1,v1=", b"t=,v1=ff", b"v1,", b",", b",,,,", b"v1", b"=", b"sha256=", b"t=1,t=2,v1=a", b"v1,a v1,b", b"\xff\xfe",
    b"9" * 5000, b"1" * 20, b"-1", b"1e309", b"nan", b"v1a,AAAA", b"v1a,\xff", b"v1a," + b"A" * 88, b"0", b"\x00",
    str(int(NOW)).encode(), b"t=%d" % NOW, b"t=%d,v1=\xff" % NOW,
]  # fmt: skip
VALUES = st.one_of(st.binary(max_size=80), st.sampled_from(ODD), st.text(max_size=30).map(lambda t: t.encode()))
HEADERS = st.lists(st.tuples(st.sampled_from([name.encode() for name in NAMES]), VALUES), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBER = st.sampled_from([*notification(), "originalReference", "additionalData", "hmacSignature", "value", "currency"])
ITEM: st.SearchStrategy[Any] = st.dictionaries(MEMBER, JSON, max_size=6).map(lambda more: {**notification(), **more})
BODIES = st.one_of(
    st.binary(max_size=100),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.lists(ITEM, max_size=3).map(lambda items: batch(*items)),
    JSON.map(lambda value: json.dumps({"notificationItems": value}).encode()),
    st.sampled_from([
        b"", b"[" * 100_000, b'{"notificationItems":[]}', b'{"notificationItems":[null]}', b"\xef\xbb\xbf{}",
        b'{"notificationItems":[{"NotificationRequestItem":{"amount":{"value":' + b"9" * 9000 + b"}}}]}",
        b'{"notificationItems":[{"NotificationRequestItem":{"amount":{"value":NaN}}}]}', b"\xff\x00\xfe",
    ]),
)  # fmt: skip


@EACH
@given(headers=HEADERS, body=BODIES, url=st.none() | st.text(max_size=20), now=st.floats(0, 4e9))
def test_whatever_is_sent_is_unverified_and_nothing_else(
    kind: Kind, headers: list[tuple[bytes, bytes]], body: bytes, url: str | None, now: float
) -> None:
    keys = [kind.scheme.parse_secret(each) for each in (kind.secret, kind.other)]
    for secrets in (keys, keys[:1], []):
        with pytest.raises(Unverified) as raised:
            verify(kind.scheme, Signed(headers, body, kind.url or _storable(url)), secrets, now)
        assert raised.value.reason in ("missing", "malformed", "timestamp", "signature", "not_configured")
        assert kind.secret not in str(raised.value)


def _storable(url: str | None) -> str | None:
    return None if url is None else url.encode("utf-8", "replace").decode()


@IN_HEADERS
@given(data=st.data())
def test_one_change_to_a_genuine_delivery_refuses_it(kind: Kind, data: st.DataObject) -> None:
    """A byte of the body or of a header, another value, a header away or there twice."""
    headers = raw(kind.headers)
    place = data.draw(st.integers(0, len(headers) - 1))
    name, good = headers[place]
    change = data.draw(st.sampled_from(["body", "flip", "value", "away", "twice"]))
    body = kind.body
    if change == "body":
        body = data.draw(st.binary(max_size=100).filter(lambda other: other != kind.body))
    elif change == "flip":
        at = data.draw(st.integers(0, len(good) - 1))
        flipped = good[:at] + bytes([good[at] ^ data.draw(st.sampled_from([1, 2, 4, 8, 16, 64, 128]))]) + good[at + 1 :]
        headers[place] = (name, flipped)
    elif change == "value":
        headers[place] = (name, data.draw(VALUES.filter(lambda other: other != good)))
    elif change == "away":
        del headers[place]
    else:
        headers.append(headers[place])
    with pytest.raises(Unverified):
        verify(kind.scheme, Signed(headers, body, kind.url), [kind.scheme.parse_secret(kind.secret)], NOW)


@EACH
def test_a_genuine_delivery_is_taken_under_any_of_several_secrets(kind: Kind) -> None:
    """Hazard 18: under the secret of another account alone it is not."""
    for secrets in ([kind.secret], [kind.secret, kind.other], [kind.other, kind.secret]):
        said = kind.says(kind.body, kind.headers, *secrets)
        assert said is None or not said.startswith("! ")
    assert kind.says(kind.body, kind.headers, kind.other) == "! signature"
    assert check_without_secrets(kind) == "signature"


def check_without_secrets(kind: Kind) -> str:
    with pytest.raises(Unverified) as raised:
        verify(kind.scheme, Signed(raw(kind.headers), kind.body, kind.url), [], NOW)
    return raised.value.reason


@pytest.mark.parametrize("kind", [each for each in KINDS if each.name != "ed25519"], ids=lambda kind: kind.name)
def test_every_secret_is_tried_whichever_fits(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes tells nobody which secret it was; and comparing stops nowhere early."""
    compared: list[bool] = []
    whole = hmac.compare_digest

    class Counted:
        digest = staticmethod(hmac.digest)

        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append(whole(one, other))
            return compared[-1]

    monkeypatch.setattr(deliveries, "hmac", Counted)
    for secrets in ([kind.secret, kind.other], [kind.other, kind.secret]):
        compared.clear()
        kind.says(kind.body, kind.headers, *secrets)
        assert sorted(compared) == [False, True]


@IN_HEADERS
@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"\\u00FC\\u00fc",  "b" :1 ,"b": 1}',
        '{"said": "🎉 漢字"}'.encode(),
        b'\xef\xbb\xbf{"with": "a byte-order mark"}',
        b"not json at all",
    ],
)
def test_ib_097_ib_098_the_bytes_are_verified_as_they_came(kind: Kind, body: bytes) -> None:
    headers = kind.sign(body, kind.secret)
    assert not str(kind.says(body, headers)).startswith("! ")
    assert kind.says(body + b" ", headers) == "! signature"


@IN_HEADERS
def test_names_of_headers_have_no_case(kind: Kind) -> None:
    headers = {name.title(): value for name, value in kind.headers.items()}
    assert not str(kind.says(kind.body, headers)).startswith("! ")


@TIMED
@pytest.mark.parametrize("away", [0, 299, 300, -299, -300])
def test_within_five_minutes(kind: Kind, away: int) -> None:
    assert kind.says(kind.body, kind.headers, now=NOW + away) == "evt_1"


@TIMED
@pytest.mark.parametrize("away", [301, -301, 3600, -86400])
def test_outside_five_minutes_in_either_direction(kind: Kind, away: int) -> None:
    assert kind.says(kind.body, kind.headers, now=NOW + away) == "! timestamp"


@EACH
@pytest.mark.parametrize("wrap", [" {}", "{} ", "\t{}", "{}\n"])
def test_ib_101_a_secret_with_space_around_it_is_refused(kind: Kind, wrap: str) -> None:
    with pytest.raises(ValueError) as raised:
        kind.scheme.parse_secret(wrap.format(kind.secret))
    assert kind.secret not in str(raised.value)


@EACH
@given(text=st.text(max_size=60))
def test_no_secret_is_ever_shown(kind: Kind, text: str) -> None:
    try:
        kind.scheme.parse_secret(text)
    except ValueError as error:
        assert len(text) < 8 or text not in str(error)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("stripe", "sk_live_" + "a" * 24, "begins with sk_"),
        ("stripe", "rk_test_" + "a" * 24, "begins with rk_"),
        ("stripe", "whsec_short", "16 or more"),
        ("stripe", "whpk_" + "a" * 32, "is whsec_"),
        ("stripe", "v1=" + "a" * 64, "is whsec_"),
        ("github", "sha256=" + "a" * 64, "begins with sha256="),
        ("github", "short", "fewer than 8"),
        ("square", "EAAAl3ikZIe35J7zqjpXkLl4sEwJ", "access token"),
        ("gocardless", "live_Y4xUyKkPvs4MhUP6ArnLQ", "access token"),
        ("adyen", "not hex at all, and long enough for it", "64 hex digits"),
        ("adyen", ADYEN[:-1], "64 hex digits"),
        ("adyen", base64.b64encode(bytes.fromhex(ADYEN)).decode(), "64 hex digits"),
        ("ed25519", PUBLIC[:-5], "31 bytes|30 bytes|29 bytes|base64"),
    ],
)
def test_ib_101_a_secret_of_another_kind_stops_the_start(name: str, text: str, said: str) -> None:
    scheme = next(kind.scheme for kind in KINDS if kind.name == name)
    with pytest.raises(ValueError, match=said) as raised:
        scheme.parse_secret(text)
    assert text not in str(raised.value)


def test_adyen_is_among_them() -> None:
    """The one whose headers are empty is the last, which the tests of headers leave out."""
    assert KINDS[-1].name == "adyen" and not KINDS[-1].headers
    assert json.loads(KINDS[-1].body)["notificationItems"][0]["NotificationRequestItem"] == by_adyen(notification())
