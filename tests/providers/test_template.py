import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.errors import Unrenderable
from idem.outbox.providers.template import (
    KEY_TEXT,
    KeyText,
    Template,
    check_header,
    compile_text,
    fill,
    render_path,
    render_text,
)
from idem.outbox.values.json_pointer import MISSING

OURS = frozenset({"key"})


def rendered(template: Any, params: Any) -> Any:
    return Template.compile(template, OURS).render(params)


def path(text: str, **params: Any) -> str:
    return render_path(compile_text(text, OURS), params)


@pytest.mark.parametrize("value", [1, 1.5, True, False, None, "", "x", [1, [2]], {"a": {"b": None}}, 2**63 - 1])
def test_a_lone_place_keeps_the_type(value: Any) -> None:
    result = rendered({"v": "{v}"}, {"v": value})["v"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        (1.5, "1.5"),
        (1e21, "1e+21"),
        (True, "true"),
        ("ä/b", "ä/b"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_inside_a_text_it_is_text(value: Any, text: str) -> None:
    assert rendered("order {v}!", {"v": value}) == f"order {text}!"


def test_members_and_items() -> None:
    params = {"a": {"b-c": {"d": 1}}, "list": [{"id": "x"}]}
    assert rendered({"a": "{a.b-c.d}", "y": ["{list.0.id}"], "{list.0.id}": True}, params) == {
        "a": 1,
        "y": ["x"],
        "x": True,
    }
    assert rendered(["{list}", 5, None, True], params) == [[{"id": "x"}], 5, None, True]


def test_a_name_from_a_param_takes_no_other_members_place() -> None:
    for template in ({"amount": 1, "{name}": 2}, {"{name}": 2, "amount": 1}):
        with pytest.raises(Unrenderable, match="'amount'"):
            rendered(template, {"name": "amount"})


def test_what_is_optional_and_missing_is_left_out() -> None:
    template = {"a": "{a?}", "b": "x {a?}", "c": ["{a?}", 1], "d": {"e": "{x.y?}"}, "{a?}": 1, "f": None}
    assert rendered(template, {}) == {"c": [1], "d": {}, "f": None}
    assert rendered({"a": "{a?}"}, {"a": None}) == {"a": None}
    assert rendered("{a?}", {}) is None
    assert render_text(compile_text("{a?}"), {}) is MISSING


@pytest.mark.parametrize("template", ["{a}", "x {a}", {"x": ["{a.b}"]}, "{list.7}", "{text.0}"])
def test_a_missing_param_is_named(template: Any) -> None:
    with pytest.raises(Unrenderable, match=r"the param (a|a\.b|list\.7|text\.0) is missing"):
        rendered(template, {"list": [], "text": "x"})


@pytest.mark.parametrize("value", [None, {}, [], [1]])
def test_what_is_no_text_cannot_stand_inside_one(value: Any) -> None:
    with pytest.raises(Unrenderable, match="cannot stand inside a text"):
        rendered("x {a}", {"a": value})


def test_braces_are_doubled() -> None:
    assert rendered("{{a}} {a} }}{{", {"a": 1}) == "{a} 1 }{"


@pytest.mark.parametrize(
    "text", ["{", "}", "a {b", "b} a", "{}", "{ }", "{a b}", "{?}", "{a..b}", "{.a}", "{1}", "{a.}"]
)
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|lone|names no param"):
        compile_text(text)


@pytest.mark.parametrize("text", ["{idem.secret}", "{idem}", "{idem.key.x}"])
def test_unknown_names_of_ours_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not available here.*\{idem.key\}"):
        compile_text(text, OURS)


def test_the_key_is_filled_in_at_the_end_and_only_where_the_template_says() -> None:
    template = {"ref": "{idem.key}", "text": "order {a}/{idem.key}", "name": "{a}", "{idem.key}": 1}
    made = rendered(template, {"a": "{idem.key}", "idem": {"key": "forged"}})
    assert fill(made, "K") == {"ref": "K", "text": "order {idem.key}/K", "name": "{idem.key}", "K": 1}
    assert fill({"ref": KEY_TEXT, "n": 1}, "K") == {"ref": "K", "n": 1}
    assert fill(KeyText("a ", None, " b"), "K") == "a K b"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("a", "a"),
        ("a/b", "a%2Fb"),
        ("..x/y", "..x%2Fy"),
        ("a b?c#d&e=f%", "a%20b%3Fc%23d%26e%3Df%25"),
        ("ü😀", "%C3%BC%F0%9F%98%80"),
        ("{idem.key}", "%7Bidem.key%7D"),
        ("\r\nHost: x", "%0D%0AHost%3A%20x"),
        (17, "17"),
        (True, "true"),
        ("~-._", "~-._"),
    ],
)
def test_path_values_are_encoded_whole(value: Any, encoded: str) -> None:
    assert path("/p/{v}/x?q={v}", v=value) == f"/p/{encoded}/x?q={encoded}"


@pytest.mark.parametrize("value", [".", "..", "", "../x", "x/..", "..\\x", "a/./b"])
def test_a_value_never_changes_the_address(value: str) -> None:
    for template in ("/payments/{v}", "/payments/{v}/refunds", "/payments/{v}?x=1"):
        with pytest.raises(Unrenderable):
            path(template, v=value)
    assert path("/payments?reference={v}", v=value) == f"/payments?reference={quote(value, safe='')}"
    assert path("/payments/x{w}{v}", v="..", w="y") == "/payments/xy.."


@pytest.mark.parametrize(
    ("template", "params"),
    [
        *(("/p/{v}", params) for params in ({}, {"v": None}, {"v": ["x"]}, {"v": "\ud800"})),
        *((path, {}) for path in ("/p?x={v?}", "p", "//evil.example/x", "/a b", "/a#b", "/a\\b", "/ü", "/%zz")),
        *((path, {}) for path in ("/a/../b", "/a/%2E%2e/b")),
    ],
)
def test_what_is_no_path_is_refused(template: str, params: dict[str, Any]) -> None:
    with pytest.raises(Unrenderable):
        path(template, **params)


@given(st.text(max_size=10))
def test_an_encoded_value_stays_in_its_place(value: str) -> None:
    try:
        made = path("/a/{v}/b?q={v}", v=value)
    except Unrenderable:
        dots = {".", ".."} & set(re.split(r"[/\\]", value))
        assert not value or dots or not value.isprintable() or any("\ud800" <= c <= "\udfff" for c in value)
        return
    before, _, after = made.partition("?")
    assert made.isascii()
    assert before.count("/") == 3
    assert after.count("=") == 1


@pytest.mark.parametrize("value", ["", " x", "x ", "a\r\nb", "ü", "a\x00", "a\tb", "\x7f"])
def test_header_values_are_visible_ascii(value: str) -> None:
    with pytest.raises(Unrenderable, match="X-Name"):
        check_header("X-Name", value)
    check_header("X-Name", "a b:c")
    check_header("X-Name", KEY_TEXT)
