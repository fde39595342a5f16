"""Hazards 34, 70: the canonical form in SQL is that of `outbox.canonical`, and refuses what that refuses."""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest
from fix_fuzz import examples
from hypothesis import example, given
from hypothesis import strategies as st

from idem.errors import BodyInvalid
from idem.outbox.values.canonical import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MAX_VALUES, canonical, parse

Jcs: TypeAlias = Callable[[str], str | None]

TRY = """
CREATE FUNCTION pg_temp.try_jcs(p text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN idem.jcs(p::json);
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$
"""


@pytest.fixture(scope="module")
def connection(functions_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(functions_url, autocommit=True) as opened:
        opened.execute(TRY)
        yield opened


@pytest.fixture(scope="module")
def jcs(connection: psycopg.Connection[Any]) -> Jcs:
    """The canonical form in SQL; None: refused, by a data exception and nothing else."""

    def run(text: str) -> str | None:
        found = connection.execute("SELECT pg_temp.try_jcs(%s)", (text,)).fetchone()
        assert found
        return None if found[0] is None else str(found[0])

    return run


def python(text: str) -> str | None:
    try:
        return canonical(parse(text.encode("utf-8"))).decode()
    except BodyInvalid:
        return None


digits = st.text("0123456789", min_size=1, max_size=20)
whole = st.one_of(
    st.integers(-(2**54), 2**54).map(str), st.integers(2**53 - 3, 2**53 + 3).map(str), digits.map(lambda d: "1" + d)
)
fraction = st.one_of(st.just(""), digits.map(".".__add__), st.integers(0, 30).map(lambda n: "." + "0" * n + "5"))
exponent = st.one_of(
    st.just(""),
    st.tuples(st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 340).map(str)).map("".join),
    st.tuples(st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.sampled_from(["007", "0", "99999", "9" * 18]))
    .map("".join),
)  # fmt: skip
spelled = st.tuples(st.one_of(whole, st.sampled_from(["0", "-0", "-1", "5", "9007199254740991"])), fraction, exponent)
doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-(2**53), 2**53),
    st.integers(0, 2**64 - 1).map(lambda n: struct.unpack(">d", n.to_bytes(8, "big"))[0]).filter(lambda d: d == d),
    st.floats(2.0**50, 2.0**53 - 1),
    st.floats(0, 1e-300),
)
numbers = st.one_of(
    spelled.map("".join),
    doubles.filter(lambda d: abs(d) != float("inf")).map(repr),
    doubles.filter(lambda d: abs(d) != float("inf")).map(lambda d: f"{d:.17e}"),
    doubles.filter(lambda d: abs(d) != float("inf")).map(lambda d: f"{d:.3e}"),
)


@given(number=numbers)
@examples(
    "5e-324", "4.9e-324", "3e-324", "1e-324", "1e-323", "2.2250738585072014e-308", "9007199254740991",
    "9007199254740992.0", "-9007199254740991", "-9007199254740992", "0.9007199254740993e16", "4503599627370495.5",
    "4503599627370497.5", "1e16", "1e400", "0e400", "-0.0e-17", "0.000001", "0.0000001", "1" + "0" * 400 + "e-400",
    "0." + "0" * 400 + "1e401",
)  # fmt: skip
def test_numbers_are_written_and_refused_as_in_python(jcs: Jcs, number: str) -> None:
    assert jcs(number) == python(number)


escapes = st.sampled_from(
    ["\\u0000", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\ude00\\ud83d", "\\uD83D\\uDE00", "\\\\u0000", "\\\\ud800",
     "\\ud83d\\\\ude00", "\\ud83d\\\\\\ude00", "\\u0041", "\\/", "\\b\\f\\n\\r\\t\\\"", "\\u001f", "\\u007f", "\\uffff"]
)  # fmt: skip
characters = st.characters(exclude_categories=("Cs",))
high = st.characters(min_codepoint=0xD000)
texts = st.one_of(
    st.text(characters, max_size=8).map(json.dumps),
    st.text(characters, max_size=8).map(lambda t: json.dumps(t, ensure_ascii=False)),
    st.text(high.filter(lambda c: not "\ud800" <= c <= "\udfff"), max_size=4)
    .map(lambda t: json.dumps(t, ensure_ascii=False)),
)  # fmt: skip
strings = st.one_of(texts, texts, st.lists(escapes, min_size=1, max_size=3).map(lambda e: f'"{"".join(e)}"'))
space = st.sampled_from(["", "", "", " ", "\n\t", " \r"])


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.tuples(texts, space, space, inner).map(lambda m: f"{m[0]}{m[1]}:{m[2]}{m[3]}")
    return st.one_of(
        st.tuples(space, st.lists(inner, max_size=5)).map(lambda x: f"[{x[0]}{(',' + x[0]).join(x[1])}{x[0]}]"),
        st.tuples(space, st.lists(members, max_size=6)).map(lambda x: f"{{{x[0]}{(',' + x[0]).join(x[1])}{x[0]}}}"),
    )


sound = st.one_of(st.sampled_from(["true", "false", "null", "0", "-1.50", "1e2"]), texts)
documents = st.recursive(sound, containers, max_leaves=30)
mixed = st.recursive(st.one_of(sound, sound, numbers, strings), containers, max_leaves=12)


@given(text=documents)
def test_documents_are_written_as_in_python(jcs: Jcs, text: str) -> None:
    assert jcs(text) == python(text)


@given(text=mixed)
@examples(
    '{"a": 1, "\\u0061": 2}', '{"\\u0000": 1}', '{"\\ud800": 1}', '{"a": {"b": 1, "b": 2}}', " [ ] ", " 1 ", "NaN",
    "-Infinity", "01", '"\x7f"', '"\t"', "", "[1,]",
    '["\\ud83d\\ude00"]', '{"a": "\\ud83d\\ude00"}', '["\\\\ \\u0041"]', '["\\\\ud800"]',
)  # fmt: skip
def test_documents_are_refused_as_in_python(jcs: Jcs, text: str) -> None:
    assert jcs(text) == python(text)


@given(names=st.lists(st.text(characters.filter("\0".__ne__), max_size=3), min_size=2, max_size=8, unique=True))
@example(["\U0010ffff", "\uffff", "\ue000", "\ud7ff", "\U00010000"])
@example(["\U0010ffffz", "\U0010ffff\uffff", "\U0010ffff\U00010000", "\U0010ffff"])
@example(["é", "e\u0301", "f", "E"])
def test_members_are_in_the_order_of_their_utf_16_code_units(jcs: Jcs, names: list[str]) -> None:
    found = jcs(json.dumps(dict.fromkeys(names, 1)))
    assert found is not None
    assert list(json.loads(found)) == sorted(names, key=lambda name: name.encode("utf-16-be"))


def test_depth_is_limited_as_in_python(jcs: Jcs) -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        for depth, refused in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True)):
            text = opened * depth + ("1" if opened != "[" else "") + closed * depth
            assert (python(text) is None, jcs(text) is None) == (refused, refused), depth


def test_size_is_limited_as_in_python(jcs: Jcs) -> None:
    for size, refused in ((MAX_BYTES, False), (MAX_BYTES + 1, True)):
        text = json.dumps("é" * 10 + "x" * (size - 22), ensure_ascii=False)
        assert len(text.encode()) == size
        assert (python(text) is None, jcs(text) is None) == (refused, refused), size


REFUSED = {
    '{"a": {"b/c": 1, "b/c": 2}}': "a member appears twice (at /a/b~1c)",
    '["\\u0000"]': "a NUL character cannot be stored",
    '["\\udead"]': "a lone surrogate cannot be stored",
    '{"id": 12345678901234567890}': "2^53-1) is not exact everywhere (at /id)",
    '{"id": [1, 0.12345678901234567890]}': "a number that a double does not hold exactly (at /id/1)",
    "[" * 65 + "]" * 65: "nested deeper than 64",
    json.dumps("x" * MAX_BYTES): "they have 1048578 bytes, more than 1048576",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_says_what_where_and_what_to_do(connection: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        connection.execute("SELECT idem.jcs(%s::json)", (text,))
    assert REFUSED[text] in str(refused.value.diag.message_primary)
    assert refused.value.diag.message_hint


@pytest.mark.parametrize(
    "setting", ["extra_float_digits = 0", "extra_float_digits = -15", "standard_conforming_strings = off",
                "search_path = ''", "lc_numeric = 'C'", "bytea_output = 'escape'"]
)  # fmt: skip
def test_the_session_s_settings_change_nothing(functions_url: str, setting: str) -> None:
    text = '{"b": [0.1234567890123456, 1e-7, "\\u00e9\\\\", "\\ud83d\\ude00"], "\\uffff": 1, "\\ud83d\\ude00": 2}'
    with psycopg.connect(functions_url) as session:
        session.execute(f"SET {setting}")
        found = session.execute("SELECT idem.jcs(%s::json)", (text,)).fetchone()
    assert found == (python(text),)


def test_the_number_of_values_is_limited_as_in_python(jcs: Jcs) -> None:
    for count, refused in ((MAX_VALUES, False), (MAX_VALUES + 1, True)):
        for text in ("[" + ",".join(["1"] * count) + "]", '[{"[,{:\\"":1}' + ",[]" * ((count - 3) // 2) + "]"):
            assert (python(text) is None, jcs(text) is None) == (refused, refused), (count, text[:40])


def test_what_would_cost_too_much_is_refused_before_it_is_read(functions_url: str) -> None:
    """Calls of the functions, as PostgreSQL counts them: none of a value beyond the limit, one for each below it."""
    with psycopg.connect(functions_url) as session:
        session.execute(TRY)
        session.execute("SET track_functions = 'all'")

        def calls(text: str) -> int:
            before, _ = counted(session), session.execute("SELECT pg_temp.try_jcs(%s)", (text,))
            return counted(session) - before

        # What is written in its canonical form already is not called for: lists and objects alone are.
        for value, each in (("1.5", 3), ("1", 2)):
            items = [f'{{"a":[{value}]}}']
            small, middle, large = (calls("[" + ",".join(items * number) + "]") for number in (500, 1000, 2000))
            assert middle - small == 500 * each and large - middle == 1000 * each
        assert calls("[" + ",".join(["1"] * (MAX_VALUES + 2)) + "]") == 0
        session.rollback()


def counted(session: psycopg.Connection[Any]) -> int:
    found = session.execute(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions WHERE funcname = 'jcs_value'"
    ).fetchone()
    return int(found[0]) if found else 0


@pytest.mark.parametrize("size", [1000, 10_000, 100_000])
def test_a_place_is_short_however_long_the_names_are(connection: psycopg.Connection[Any], size: int) -> None:
    """It is written for each value below a name: a long one above many values would cost both, multiplied."""
    text = json.dumps({"n" * size: [1, 2, 2**60]})
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        connection.execute("SELECT idem.jcs(%s::json)", (text,))
    said = refused.value.diag.message_primary
    assert said and "n…/2)" in said and len(said) < 300


def test_a_number_is_as_long_as_in_python(jcs: Jcs) -> None:
    for length, refused in ((MAX_DIGITS, False), (MAX_DIGITS + 1, True)):
        text = "[1." + "0" * (length - 2) + "]"
        assert (python(text) is None, jcs(text) is None) == (refused, refused), length
