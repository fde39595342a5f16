"""Keys that look like personal data, and those that must never be taken for it."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.api.suspicious import kind

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
VISIBLE = "".join(map(chr, range(33, 127)))


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("ann@example.com", "email"), ("user:john_doe@mail.example.co.uk", "email"), ("ANN+shop@EXAMPLE.DE", "email"),
        ("order-5/ann@example.com", "email"), ("+4915112345678", "phone"), ("+1-212-555-0100", "phone"),
        ("(212)555-0100", None), ("(212)-555-0100", "phone"), ("212-555-0100", "phone"),
        ("pay:+49.151.1234567", "phone"),
        ("078-05-1120", "ssn"), ("ssn=078-05-1120", "ssn"), ("000-12-3456", None), ("900-12-3456", None),
        ("078-00-1120", None), ("2025-01-31", None), ("20250131", None), ("15112345678", None), ("order-4711", None),
        ("ann@localhost", None), ("@example.com", None), ("a@b", None), ("+123", None), ("v1.2.3", None),
        ("192.168.100.200", None), ("2025-01-31T12:00:00Z", None),
    ],
)  # fmt: skip
def test_what_looks_like_what(key: str, found: str | None) -> None:
    assert kind(key) == found


@given(st.uuids())
def test_a_uuid_never_matches(value: object) -> None:
    assert kind(str(value)) is None
    assert kind(str(value).upper()) is None
    assert kind(str(value).replace("-", "")) is None


@given(st.text(CROCKFORD, min_size=26, max_size=26), st.text("0123456789abcdef", min_size=8, max_size=64))
def test_a_ulid_and_random_hex_never_match(ulid: str, hexadecimal: str) -> None:
    assert kind(ulid) is None
    assert kind(hexadecimal) is None


@given(st.binary(min_size=16, max_size=48))
def test_random_bytes_in_base64_for_urls_never_match(value: bytes) -> None:
    assert kind(base64.urlsafe_b64encode(value).decode()) is None


@given(st.text(string.digits, min_size=1, max_size=40))
def test_digits_alone_never_match(value: str) -> None:
    assert kind(value) is None


@given(st.text(VISIBLE, min_size=1, max_size=255))
def test_any_key_gets_an_answer(value: str) -> None:
    assert kind(value) in (None, "email", "phone", "ssn")


@pytest.mark.parametrize("key", ["a." * 127 + "@", "a@" + "a." * 126, "+1" + "-" * 253, "+1" + "1-" * 126, "@" * 255])
def test_a_hostile_key_takes_no_time(key: str) -> None:
    for _ in range(1000):
        kind(key)
