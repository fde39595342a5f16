"""A delivery of several events cut into one for each: all bytes as they came, without the other items of its list."""

import json
import re
from typing import Final

from idem.outbox.values.json_pointer import Tokens

DECODER: Final = json.JSONDecoder()
SPACE: Final = re.compile(r"[ \t\n\r]*")

MOST: Final = 16 * 1024 * 1024
"""Characters of all parts together: what stands around a list is there once for each of its items."""


def alone(body: bytes, tokens: Tokens) -> tuple[bytes, ...] | None:
    """The body once for each item of the list that the pointer finds, with this item as its only one.

    None where that would be more than `MOST`: no provider sends such a batch, and idem could not store it.

    For a body that was read as JSON and has a list there. Read again, each says what its item said in the whole.
    """
    text = body.decode("utf-8-sig")
    at = _skip(text, 0)
    for token in tokens:
        at = _children(text, at)[0][token][0]
    items, end = _children(text, at)
    if len(items) * (at + 1 + len(text) - end) > MOST:
        return None
    return tuple((text[: at + 1] + text[first:last] + text[end:]).encode() for first, last in items.values())


def _children(text: str, at: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the members or items of what begins at `at` stand, by name or number; and where its bracket closes."""
    named = text[at] == "{"
    found: dict[str, tuple[int, int]] = {}
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        name = str(len(found))
        if named:
            name, at = DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = DECODER.raw_decode(text, at)
        found[name] = (at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at


def _skip(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    assert space is not None
    return space.end()
