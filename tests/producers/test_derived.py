"""Hazards 34, 38, 59, 70: fingerprint, provider key, key and card data in SQL are those of Python."""

import hmac
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fix_fuzz import examples
from hypothesis import example, given
from hypothesis import strategies as st

from idem.errors import KeyInvalid
from idem.outbox.domain import keys
from idem.outbox.domain.fingerprints import without
from idem.outbox.values import card_data
from idem.outbox.values.json_pointer import render

Connection = psycopg.Connection[Any]

TRY_KEY = """
CREATE FUNCTION pg_temp.try_key(p text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN idem.parse_key(p);
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;
END $$
"""


@pytest.fixture(scope="module")
def connection(functions_url: str) -> Iterator[Connection]:
    with psycopg.connect(functions_url, autocommit=True) as opened:
        opened.execute(TRY_KEY)
        yield opened


def one(connection: Connection, query: str, *parameters: Any) -> Any:
    found = connection.execute(query, parameters).fetchone()
    assert found
    return found[0]


words = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=6)
names = st.one_of(st.sampled_from(["a", "b", "0", "-1", "01", "~", "/", "a/b", ""]), words)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), words, st.floats(-1e9, 1e9).map(
        lambda f: int(f) if f.is_integer() else f)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip
pointers = st.lists(st.lists(names, min_size=1, max_size=3).map(render), max_size=3)

FINGERPRINT = """
SELECT idem.fingerprint(%s, CASE WHEN cardinality(%s::text[]) > 0
           THEN idem.jcs(idem.params_without(idem.jcs(%s::json)::jsonb, %s::text[])::text::json)
           ELSE idem.jcs(%s::json) END)
"""


@given(operation=words, params=values, left_out=pointers)
@example("pay", None, [])
@example("pay", {}, [])
@example("pay", {"a": {"b": 1e-7, "c": 2}, "b": [{"a": 1}, 2]}, ["/a/c", "/b/0/a", "/b/-1", "/b/1", "/x/y"])
@example("pay", [{"a": 1}, {"a": 2}], ["/-1/a", "/01/a", "/1/a"])
@example("pay", {"a": "text", "b": None}, ["/a/0", "/b/0", "/b"])
def test_hazard_70_the_fingerprint(connection: Connection, operation: str, params: Any, left_out: list[str]) -> None:
    text = json.dumps(params)
    found = one(connection, FINGERPRINT, operation, left_out, text, left_out, text)
    assert found == keys.fingerprint(operation, without(params, tuple(left_out)))


COUNT = st.integers(1, 30000)
DERIVED = "SELECT idem.provider_key(idem.hmac_pad(%s, 54), idem.hmac_pad(%s, 92), %s, %s, %s, %s, %s)"
HMAC = "SELECT sha256(idem.hmac_pad(%s, 92) || sha256(idem.hmac_pad(%s, 54) || %s))"


@given(parts=st.tuples(st.binary(min_size=1, max_size=100), words, words, words, COUNT, COUNT))
def test_hazard_59_the_provider_key_is_python_s(connection: Connection, parts: Any) -> None:
    found: UUID = one(connection, DERIVED, parts[0], *parts)
    assert found == keys.provider_key(*parts)


@given(key=st.binary(max_size=200), message=st.binary(max_size=200))
@example(b"k" * 63, b"m")
@example(b"k" * 64, b"m")
@example(b"k" * 65, b"m")
def test_hmac_is_that_of_the_standard(connection: Connection, key: bytes, message: bytes) -> None:
    assert one(connection, HMAC, key, key, message) == hmac.digest(key, message, "sha256")


@given(text=st.one_of(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x80), max_size=6),
    st.text('"\\,; \t\nab', max_size=6),
    st.text("ab", min_size=1, max_size=3).map('"{}"'.format),
))  # fmt: skip
@examples(
    "", '""', '"', '"a,b;c"', "a,b", " \tabc ", "é", "k" * 255, "k" * 256, '"' + "k" * 255 + '"',
    '"' + "k" * 256 + '"',
)  # fmt: skip
def test_a_key_is_read_as_in_python(connection: Connection, text: str) -> None:
    try:
        expected: str | None = keys.parse_key(text)
    except KeyInvalid:
        expected = None
    assert one(connection, "SELECT pg_temp.try_key(%s)", text) == expected


CARDS = [
    "4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "5500005555555559", "340000000000009",
    "4111111111111112", "1111111111111111", "411111111111111", "4111  111111111111", "x4111111111111111",
]  # fmt: skip
NAMES = [*sorted(card_data.NAMES), "C-V-C", "Card Number", "securitycode", "SECURİTYCODE", "pan_id", "spanning"]
held = st.one_of(
    st.sampled_from([*CARDS, "", "123", None, 4111111111111111, 4111111111111112, True, 0, 1.5, [], {}]), words
)
suspects = st.recursive(
    held, lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.sampled_from(NAMES), words), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


@given(params=suspects)
@example({"cvc": ""})
@example({"cvc": {"cvc": "1"}})
@example([4111111111111111])
def test_hazard_38_card_data_is_found_as_in_python(connection: Connection, params: Any) -> None:
    found = one(connection, "SELECT idem.card_data(%s::jsonb)", json.dumps(params))
    assert (found is not None) == bool(card_data.find(params)), found


@pytest.mark.parametrize("name", NAMES)
def test_hazard_38_every_name_of_card_data_is_known(connection: Connection, name: str) -> None:
    params = {"a": [{name: "1"}]}
    found = one(connection, "SELECT idem.card_data(%s::jsonb)", json.dumps(params))
    assert (found is not None) == bool(card_data.find(params)), found
