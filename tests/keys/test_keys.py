import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.errors import BodyInvalid, KeyInvalid
from idem.outbox.domain.keys import fingerprint, parse_key, provider_key, raw_fingerprint

SECRET = b"s" * 32


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ("  abc\t", "abc"),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"order:17/a.b~c_d"', "order:17/a.b~c_d"),
        ("order:17/a.b~c_d", "order:17/a.b~c_d"),
        ('"a,b;c"', "a,b;c"),
        ("!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~"),
        ("k" * 255, "k" * 255),
        (f'"{"k" * 255}"', "k" * 255),
    ],
)
def test_quoted_and_bare_are_the_same_key(text: str, key: str) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "missing"),
        ("", "missing"),
        ("   ", "missing"),
        ("\t", "missing"),
        ('""', "empty"),
        ('"abc', "double quote"),
        ('abc"', "double quote"),
        ('a"b', "double quote"),
        ('"a\\"b"', "backslash"),
        ("a\\b", "backslash"),
        ('"a";p=1', "parameters"),
        ("a;p=1", "parameters"),
        ('"a", "b"', "list"),
        ("a, b", "list"),
        ("a,b", "list"),
        ("a b", "spaces"),
        ("schlüssel", "ASCII"),
        ('"ключ"', "ASCII"),
        ("a\x00", "ASCII"),
        ("a\nb", "ASCII"),
        ("k" * 256, "256 characters"),
        (f'"{"k" * 256}"', "256 characters"),
        ("k" * 8000, "8000 characters"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(text: str | None, why: str) -> None:
    with pytest.raises(KeyInvalid, match=why):
        parse_key(text)


def test_strict_demands_the_string_of_rfc_9651() -> None:
    assert parse_key('"abc"', strict=True) == "abc"
    with pytest.raises(KeyInvalid, match="double quotes"):
        parse_key("abc", strict=True)


@given(st.text(st.characters(max_codepoint=300), max_size=270))
def test_parse_key_gives_a_usable_key_or_says_why(text: str) -> None:
    try:
        key = parse_key(text)
    except KeyInvalid:
        return
    assert 1 <= len(key) <= 255
    assert all("!" <= character <= "~" for character in key)
    assert parse_key(f'"{key}"') == key


def test_fingerprint_is_the_hash_of_the_canonical_request() -> None:
    written = b'{"body":{"amount":1,"currency":"eur"},"operation":"payments.create"}'
    expected = "v1:" + hashlib.sha256(written).hexdigest()
    assert fingerprint("payments.create", {"currency": "eur", "amount": 1.0}) == expected
    assert fingerprint("payments.create", {"amount": 1, "currency": "eur"}, path="", query={}) == expected


def test_fingerprint_separates_what_differs() -> None:
    prints = [
        fingerprint("a", None),
        fingerprint("a", {}),
        fingerprint("a", []),
        fingerprint("b", {}),
        fingerprint("a", {}, path="/x"),
        fingerprint("a", {}, query="x=1"),
        fingerprint("a", {}, query={"x": "1"}),
        fingerprint("a", {"n": 100000000.00000001}),
        fingerprint("a", {"n": 100000000.00000003}),
        raw_fingerprint("a", b"{}"),
        raw_fingerprint("a", b"{} "),
        raw_fingerprint("b", b"{}"),
    ]
    assert len(set(prints)) == len(prints)
    assert prints[-1].startswith("v1-raw:")


def test_fingerprint_refuses_what_has_no_canonical_form() -> None:
    with pytest.raises(BodyInvalid):
        fingerprint("a", {"n": 2**60})


def test_provider_key_is_a_uuid_of_version_8_that_never_changes() -> None:
    made = provider_key(SECRET, "acme", "payments.create", "order-1", step=1, generation=1)
    # Pinned: another value here would be a second payment for every client's retry after an upgrade.
    assert (made, made.version, made.variant) == (uuid.UUID("541132ac-b973-8eae-8566-4d5b6c3e0d16"), 8, uuid.RFC_4122)
    assert len(str(made)) == 36


def test_provider_key_depends_on_every_part_and_the_parts_do_not_flow_together() -> None:
    made = [
        provider_key(SECRET, "a", "b", "c", 1, 1),
        provider_key(SECRET, "a", "b", "c", 1, 2),
        provider_key(SECRET, "a", "b", "c", 2, 1),
        provider_key(SECRET, "a", "b", "d", 1, 1),
        provider_key(SECRET, "a", "bc", "", 1, 1),
        provider_key(SECRET, "ab", "c", "", 1, 1),
        provider_key(SECRET, 'a","b', "c", "", 1, 1),
        provider_key(SECRET, "a", "b", "c", 11, 1),
        provider_key(SECRET, "a", "b", "c", 1, 11),
        provider_key(b"t" * 32, "a", "b", "c", 1, 1),
    ]
    assert len(set(made)) == len(made)


def test_provider_key_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="secret"):
        provider_key(b"", "a", "b", "c", 1, 1)
