"""Strict JSON, and the published examples of RFC 8785."""

import json
import struct
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.errors import BodyInvalid
from idem.outbox.values.canonical import MAX_INTEGER, canonical, check, parse

SORTED = {
    "\u20ac": "Euro Sign",
    "\r": "Carriage Return",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One",
    "\U0001f600": "Emoji: Grinning Face",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis",
}
"""RFC 8785, 3.2.3."""


def test_rfc_8785_section_3_2_2_primitive_types() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical(value) == (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_rfc_8785_section_3_2_3_members_are_sorted_by_utf_16_units() -> None:
    assert list(json.loads(canonical(SORTED)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_rfc_8785_appendix_b_numbers(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number).decode() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, Decimal(1), {1: 2}, "\ud800", {"\ud800": 1}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(BodyInvalid):
        canonical(value)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"a":{"b":1,"b":2}}', "/a/b"),
        (b'{"a":[1,NaN]}', "/a/1"),
        (b'{"a":-Infinity}', "/a"),
        (b'{"a":"x\\u0000"}', "/a"),
        (b'{"a":"\\ud800"}', "/a"),
        (b'{"a":{"\\u0000":1}}', "/a/\x00"),
        (b'{"\\udc00":1}', "/?"),
        (b'{"a":[{"b/c":9007199254740992}]}', "/a/0/b~1c"),
        (b'{"a":-9007199254740992}', "/a"),
        (b'{"a":9007199254740993.0}', "/a"),
        (b'{"a":1e20}', "/a"),
        (b'{"a":1e400}', "/a"),
        (b'{"a":1e-99999999999999999999}', "/a"),
        (b'{"a":100000000.000000011}', "/a"),
        (b'{"a":' + b"1" * 5000 + b"}", "/a"),
    ],
)
def test_what_is_not_held_exactly_is_refused_with_its_pointer(body: bytes, pointer: str) -> None:
    with pytest.raises(BodyInvalid) as raised:
        parse(body)
    assert raised.value.pointer == pointer
    assert str(raised.value).encode()  # sayable in every log


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[1,]", b"nul", b'"\x00"', b'{"a":1}x', "[1]".encode("utf-16")]
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        parse(body)


def test_depth_and_size_have_limits() -> None:
    assert parse(b"[" * 64 + b"]" * 64)
    assert parse(b'["' + b"[" * 100 + b'"]') == ["[" * 100]
    for body in (b"[" * 65 + b"]" * 65, b"[" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65):
        with pytest.raises(BodyInvalid, match="nested"):
            parse(body)
    with pytest.raises(BodyInvalid, match="nested"):
        parse(b"[[1]]", depth=1)
    with pytest.raises(BodyInvalid, match="more than 3"):
        parse(b"[12]", limit=3)


def test_one_number_in_three_spellings_is_one_value() -> None:
    values = parse(b"[1, 1.0, 1e0, -0.0]")
    assert values == [1, 1, 1, 0]
    assert all(type(value) is int for value in values)
    assert parse(b"[0.1, 1.5e-7, 9007199254740991]") == [0.1, 1.5e-7, MAX_INTEGER]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": Decimal("1.10")}, "/a"),
        ({"a": date(2026, 1, 1)}, "/a"),
        ({"a": [b"x"]}, "/a/0"),
        ({"a": {1: 2}}, "/a"),
        ({"a": {1, 2}}, "/a"),
        ({"a": float("inf")}, "/a"),
        ({"a": 2**53}, "/a"),
        ({"a": 1e300}, "/a"),
        ({"a": "\x00"}, "/a"),
    ],
)
def test_python_values_are_checked_the_same_way(value: object, pointer: str) -> None:
    with pytest.raises(BodyInvalid) as raised:
        check(value)
    assert raised.value.pointer == pointer


def test_a_value_that_contains_itself_is_too_deep() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(BodyInvalid, match="nested"):
        check(loop)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(-MAX_INTEGER, MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abé€😀", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_what_check_lets_through_comes_back_the_same(value: object) -> None:
    check(value)
    written = canonical(value)
    assert parse(written) == value
    assert canonical(parse(written)) == written


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_parse_raises_nothing_else(body: bytes) -> None:
    try:
        value = parse(body)
    except BodyInvalid:
        return
    check(value)
    canonical(value)
