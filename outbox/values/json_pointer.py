"""JSON Pointer (RFC 6901): a path into a JSON value."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

Tokens: TypeAlias = tuple[str, ...]


class Missing(Enum):
    """The type of `MISSING`, which is not None: JSON has null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def parse(text: str) -> Tokens:
    """The reference tokens of a pointer. Raises ValueError if it is neither empty nor begins with `/`."""
    if text == "":
        return ()
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer: it starts with a slash, e.g. /data/0/id")
    if re.search(r"~(?![01])", text):
        raise ValueError(f"{text!r} is not a JSON pointer: write a tilde as ~0 and a slash in a name as ~1")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def render(tokens: Iterable[str | int]) -> str:
    """The pointer with these tokens, for people: lone surrogates are replaced, because they fit into no log."""
    escaped = (str(token).replace("~", "~0").replace("/", "~1") for token in tokens)
    return "".join(f"/{token}" for token in escaped).encode("utf-8", "replace").decode("utf-8")


def resolve(value: Any, tokens: Tokens | None) -> Any:
    """What the pointer finds in the value, or `MISSING`; None is a pointer that finds nothing."""
    if tokens is None:
        return MISSING
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token, MISSING)
        elif isinstance(value, list) and INDEX.fullmatch(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value
