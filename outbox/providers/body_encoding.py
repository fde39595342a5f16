"""The bytes of a body: compact JSON, or a form with nested members in brackets (`a[b]=c`, lists as `a[0]=c`)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlencode

import rfc8785

from idem.outbox.values import json_bytes
from idem.outbox.values.errors import Unrenderable

Encoding: TypeAlias = Literal["json", "form"]

MEDIA_TYPES: Final[Mapping[Encoding, str]] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
}


MOST: Final = 2 * 2**20
"""Bytes that the body of a provider request may have. A form says with each value the names of all that is around it:
small params could make a body of gigabytes. So it is counted while it is written."""


def is_form(headers: Mapping[str, str]) -> bool:
    """Whether the body of a request with these headers, names in any case, is a form."""
    media = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return media.partition(";")[0].strip().lower() == MEDIA_TYPES["form"]


def encoded(content: Any, encoding: Encoding) -> bytes:
    """The bytes of a JSON value, the same for the same value. Raises Unrenderable: it has no such form, or too many."""
    made = _form(content) if encoding == "form" else _json(content)
    if len(made) > MOST:
        raise Unrenderable(TOO_LARGE)
    return made


TOO_LARGE: Final = f"the body of the provider request has more than {MOST} bytes"


class _Room:
    """What may still be written of a form."""

    def __init__(self) -> None:
        self.left = MOST

    def take(self, text: str) -> str:
        """The text, counted. Raises Unrenderable."""
        self.left -= len(text)
        if self.left < 0:
            raise Unrenderable(TOO_LARGE)
        return text


def _json(content: Any) -> bytes:
    try:
        return json_bytes.encoded(content)
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise Unrenderable(f"the body of the provider request is not JSON: {error}") from None


def _form(content: Any) -> bytes:
    """The form as Stripe's library writes it: a null member and an empty list or object are left out, "" is kept."""
    if not isinstance(content, dict):
        raise Unrenderable("the body of the provider request is not an object, and a form has members only")
    pairs: dict[str, str] = {}
    try:
        for name, text in _members(content, _Room()):
            if name in pairs:
                raise Unrenderable(f"two members of the form would have the name {name!r}")
            pairs[name] = text
        return urlencode(pairs).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise Unrenderable(f"the body of the provider request is not a form: {error}") from None


def _members(content: dict[Any, Any], room: _Room, around: str = "") -> Iterator[tuple[str, str]]:
    for name, item in content.items():
        if not isinstance(name, str):
            raise Unrenderable("the body of the provider request has a member whose name is not text")
        if item is not None:
            yield from _pairs(room.take(f"{around}[{name}]" if around else name), item, room)


def _pairs(name: str, value: Any, room: _Room) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            # With a bracket of its own it would be read as another member: `a[b]]` is `a[b]` to many.
            if any(isinstance(inner, str) and ("[" in inner or "]" in inner) for inner in value):
                raise Unrenderable(
                    f"a member of {name[:60]} has a bracket in its name, which a form cannot tell from its own"
                )
            yield from _members(value, room, name)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _pairs(room.take(f"{name}[{index}]"), item, room)
        case bool():
            yield name, "true" if value else "false"
        case str():
            yield name, room.take(value)
        case int():
            yield name, str(value)
        case float():
            yield name, rfc8785.dumps(value).decode()
        case None:
            # A place in a list cannot be left out without moving those behind it.
            raise Unrenderable(f"the item {name[:60]} of a list is null, which a form has no word for")
        case _:
            raise Unrenderable(
                f"the member {name[:60]} of the form is a {type(value).__name__}, which JSON does not have"
            )
