"""Templates: a request or an answer with places in it that are filled from params.

`"{amount}"`, the whole of a string, becomes the param's own JSON value, type kept; inside a longer string it is
text. `{a.b}` walks into members and list items. A question mark, `{note?}`, leaves the whole member out where the
param is missing. `{{` and `}}` are braces. Names under `idem.` are ours: the provider key is not known yet when a
request is built, so it stays a `KeyText` until the request is frozen; a param that reads `{idem.key}` is only text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import rfc8785

from idem.outbox.values import json_pointer
from idem.outbox.values.errors import Unrenderable
from idem.outbox.values.json_pointer import MISSING, Tokens

PARTS: Final = re.compile(r"(\{\{|\}\}|\{[^{}]*\}|[{}])")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")

OURS: Final = "idem"
KEY: Final = (OURS, "key")

HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
PATH: Final = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")


class KeyText(str):
    """A text with places for the provider key, which only `freeze` knows. `KEY_TEXT` is the key and nothing else.

    As a str it reads `{idem.key}` there; joined or formatted it is an ordinary str: use `KeyText("order ", None)`.
    """

    parts: tuple[str | None, ...]

    def __new__(cls, *parts: str | None) -> KeyText:
        self = super().__new__(cls, "".join("{idem.key}" if part is None else part for part in parts))
        self.parts = parts
        return self

    def fill(self, key: str) -> str:
        return "".join(key if part is None else part for part in self.parts)


KEY_TEXT: Final = KeyText(None)


def fill(value: Any, key: str) -> Any:
    """The JSON value with the provider key in every `KeyText`, in names too."""
    match value:
        case KeyText():
            return value.fill(key)
        case dict():
            return {fill(name, key): fill(item, key) for name, item in value.items()}
        case list() | tuple():
            return [fill(item, key) for item in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Hole:
    """A place: the path of the param, and whether it may be missing."""

    path: Tokens
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def what(self) -> str:
        return f"{'the result' if self.path[0] == OURS else 'the param'} {self.name}"


Text: TypeAlias = tuple[str | Hole, ...]


@lru_cache(1024)
def compile_text(text: str, ours: frozenset[str] = frozenset()) -> Text:
    """The parts of a text. `ours` are the names under `idem.` that may be used here, with a star for any end of them.

    Raises ValueError for a lone brace, a place without a usable name, or an unknown name of ours.
    """
    parts: list[str | Hole] = []
    for part in PARTS.split(text):
        if part in ("{{", "}}"):
            _literal(parts, part[0])
        elif part in ("{", "}"):
            raise ValueError(f"{text!r} has a lone {part!r}: write {part * 2} for the character itself")
        elif part.startswith("{"):
            parts.append(_hole(part, text, ours))
        elif part:
            _literal(parts, part)
    return tuple(parts)


def _literal(parts: list[str | Hole], text: str) -> None:
    if parts and isinstance(last := parts[-1], str):
        parts[-1] = last + text
    else:
        parts.append(text)


def _hole(part: str, text: str, ours: frozenset[str]) -> Hole:
    name = part[1:-1].strip()
    optional = name.endswith("?")
    name = name.removesuffix("?")
    if not NAME.fullmatch(name):
        raise ValueError(f"{text!r}: {part} names no param; a place is written {{name}}, {{a.b}} or {{name?}}")
    path = tuple(name.split("."))
    if path[0] == OURS and not any(fnmatchcase(".".join(path[1:]), each) for each in ours):
        known = ", ".join(f"{{idem.{word}}}" for word in sorted(ours)) or "none"
        raise ValueError(f"{text!r}: {part} is not available here; of ours there are: {known}")
    return Hole(path, optional)


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value whose strings (names of members too) are templates."""

    node: Any

    @classmethod
    def compile(cls, value: Any, ours: frozenset[str] = frozenset()) -> Template:
        """Raises ValueError as `compile_text`."""
        return cls(_compile(value, ours))

    def render(self, params: Any) -> Any:
        """The value with the params filled in; None where all of it was optional and missing.

        Raises Unrenderable, naming the param, where one is missing or cannot stand inside a text.
        """
        rendered = _render(self.node, params)
        return None if rendered is MISSING else rendered

    def holes(self) -> tuple[Hole, ...]:
        """Every place, in order."""
        return tuple(_holes(self.node))


def _compile(value: Any, ours: frozenset[str]) -> Any:
    match value:
        case str():
            return compile_text(value, ours)
        case Mapping():
            return {compile_text(str(name), ours): _compile(item, ours) for name, item in value.items()}
        case list():
            return [_compile(item, ours) for item in value]
        case _:
            return value


def _render(node: Any, params: Any) -> Any:
    match node:
        case tuple():
            return render_value(node, params)
        case dict():
            return _members((render_text(name, params), _render(item, params)) for name, item in node.items())
        case list():
            return [item for item in (_render(item, params) for item in node) if item is not MISSING]
        case _:
            return node


def _members(items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, item in items:
        if name is MISSING or item is MISSING:
            continue
        if name in members:
            # A name that comes from a param must not take the place of a member that the template says.
            raise Unrenderable(f"two members of the body would have the name {name!r}")
        members[name] = item
    return members


def _holes(node: Any) -> list[Hole]:
    match node:
        case tuple():
            return [part for part in node if isinstance(part, Hole)]
        case dict():
            return [hole for name, item in node.items() for hole in (*_holes(name), *_holes(item))]
        case list():
            return [hole for item in node for hole in _holes(item)]
        case _:
            return []


def render_value(text: Text, params: Any) -> Any:
    """A lone place gives the param's own value; anything else a text, or `MISSING`. Raises Unrenderable."""
    if len(text) == 1 and isinstance(hole := text[0], Hole) and hole.path != KEY:
        return _look_up(hole, params)
    return render_text(text, params)


def render_text(text: Text, params: Any) -> Any:
    """The text, a `KeyText` where the provider key is in it; `MISSING` if an optional param is missing.

    Raises Unrenderable.
    """
    parts: list[str | None] = []
    for part in text:
        if isinstance(part, str):
            parts.append(part)
            continue
        value = _look_up(part, params)
        if value is MISSING:
            return MISSING
        parts.extend(_words(part, value))
    return _joined(parts)


def render_path(text: Text, params: Any) -> str:
    """A path with its query: values percent-encoded whole (RFC 3986), a slash too, as UTF-8.

    Raises Unrenderable for a missing param, an empty value before the query, and a segment of dots (another address).
    """
    parts: list[str | None] = []
    in_path = True
    for part in text:
        if isinstance(part, str):
            in_path = in_path and "?" not in part
            parts.append(part)
            continue
        value = _look_up(part, params)
        if value is MISSING:
            raise Unrenderable(f"{part.what} is missing, and the path needs it")
        if value == "" and in_path:
            raise Unrenderable(f"{part.what} is empty, and would leave a hole in the path")
        parts.extend(None if word is None else _encoded(part, word) for word in _words(part, value))
    path = _joined(parts)
    check_path(path)
    return path


def check_path(path: str) -> None:
    """Raises Unrenderable unless it is an absolute path, with or without a query, in the characters of RFC 3986."""
    plain = path.fill("key") if isinstance(path, KeyText) else path
    if not PATH.fullmatch(plain) or plain.startswith("//"):
        raise Unrenderable(f"{plain!r} is no path: it begins with one slash, and its values are percent-encoded")
    # As a gateway may read it that decodes before it looks.
    read = plain.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/")
    if "." in read and any(segment in (".", "..") for segment in read.split("/")):
        raise Unrenderable(f"the path {plain!r} has a segment of dots, which is another address")


def check_header(name: str, value: str) -> None:
    """Raises Unrenderable unless the value is visible ASCII (spaces inside)."""
    plain = value.fill("key") if isinstance(value, KeyText) else value
    if not isinstance(plain, str) or not HEADER_VALUE.fullmatch(plain):
        raise Unrenderable(f"the header {name} would have a value that is not visible ASCII")


def _look_up(hole: Hole, params: Any) -> Any:
    if hole.path == KEY:
        return KEY_TEXT
    value = json_pointer.resolve(params, hole.path)
    if value is MISSING and not hole.optional:
        raise Unrenderable(f"{hole.what} is missing")
    return value


def _joined(parts: list[str | None]) -> str:
    return KeyText(*parts) if None in parts else "".join(part for part in parts if part is not None)


def _encoded(hole: Hole, value: str) -> str:
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise Unrenderable(f"{hole.what} holds a lone surrogate") from None


def _words(hole: Hole, value: Any) -> tuple[str | None, ...]:
    match value:
        case KeyText():
            return value.parts
        case bool():
            return ("true" if value else "false",)
        case str():
            return (value,)
        case int():
            return (str(value),)
        case float():
            try:
                return (rfc8785.dumps(value).decode(),)
            except ValueError as error:
                raise Unrenderable(f"{hole.what}: {error}") from None
        case _:
            kind = "null" if value is None else "an object" if isinstance(value, dict) else "a list"
            raise Unrenderable(f"{hole.what} is {kind}, which cannot stand inside a text")
