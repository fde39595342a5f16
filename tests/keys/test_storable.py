import json
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.values import storable

NASTY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=20)
    | st.decimals()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)


def test_text_replaces_what_postgresql_refuses() -> None:
    assert storable.text("a\x00b") == "a\ufffdb"
    assert storable.text("a\ud800b") == "a\ufffdb"
    assert storable.text(b"a\xffb") == "a\ufffdb"
    assert storable.text(17) == "17"
    assert storable.text("ünïcödé 😀") == "ünïcödé 😀"


def test_text_is_cut_with_an_ellipsis() -> None:
    assert storable.text("abcdef", 4) == "abc…"
    assert storable.text("abcd", 4) == "abcd"
    assert storable.text("abcd", 0) == ""
    assert len(storable.text(b"\xf0\x9f\x98\x80" * 100, 10)) == 10


def test_text_survives_a_foreign_str() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    assert storable.text(Broken()) == "<Broken>"


def test_body_keeps_its_bytes_and_is_capped() -> None:
    assert storable.body(b"\x00\xff" * 3, 4) == b"\x00\xff\x00\xff"


def test_integers_keep_all_their_digits() -> None:
    stored = storable.fields({"id": 9223372036854775807, "big": 10**40, "amount": 10.1})
    assert json.dumps(stored) == f'{{"id": 9223372036854775807, "big": {10**40}, "amount": 10.1}}'


def test_decimals_keep_their_value() -> None:
    stored = storable.fields({"a": Decimal("10.10"), "b": Decimal("100000000.000000011"), "c": Decimal("NaN")})
    assert stored == {"a": 10.1, "b": "100000000.000000011", "c": None}


def test_nan_becomes_null_with_a_note() -> None:
    notes: list[str] = []
    assert storable.fields({"a": [float("nan"), float("-inf")], "b": "x\x00"}, notes) == {
        "a": [None, None],
        "b": "x\ufffd",
    }
    assert notes == [
        "/a/0: nan became null",
        "/a/1: -inf became null",
        "/b: the text was changed so that it can be stored",
    ]


def test_names_are_cleaned_too() -> None:
    notes: list[str] = []
    assert storable.fields({"a\x00": 1, 2: "x"}, notes) == {"a\ufffd": 1, "2": "x"}


def test_nesting_and_size_are_cut() -> None:
    deep: object = "end"
    for _ in range(10_000):
        deep = [deep]
    notes: list[str] = []
    written = json.dumps(storable.fields({"deep": deep}, notes))
    assert "nested deeper" in notes[0]
    assert len(written) < 200
    notes.clear()
    large = storable.fields({"list": ["x" * 100] * 100_000, "after": 1, "number": 10**2000}, notes)
    assert len(json.dumps(large)) < 2 * storable.MAX_TOTAL
    assert any("left out" in note for note in notes)


@given(st.dictionaries(st.text(st.characters()) | st.integers(), NASTY, max_size=5))
def test_everything_becomes_json_that_jsonb_takes(mapping: dict[object, object]) -> None:
    stored = storable.fields(mapping)
    assert "\\u0000" not in json.dumps(stored, allow_nan=False)
    json.dumps(stored, ensure_ascii=False).encode("utf-8")
    assert storable.fields(stored) == stored
