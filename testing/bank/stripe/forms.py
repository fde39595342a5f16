"""Form bodies and queries with nested names: `metadata[order]=17`, `items[0][price]=p`, `expand[]=customer`."""

import re
from typing import Any
from urllib.parse import parse_qsl

_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
# The client chooses the names of its members, which may be numbers.
_NEVER_A_LIST = "metadata"


def form(text: str) -> dict[str, Any]:
    """The parameters, every value a string.

    Raises:
        ValueError: a name is malformed, or is both a value and an object; the message names it.
    """
    document: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text)):
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"Invalid parameter name: {name}")
        _put(document, [match[1], *re.findall(r"\[([^\[\]]*)\]", match[2])], value, name)
    return {name: _lists(value, name) for name, value in document.items()}


def _put(document: dict[str, Any], path: list[str], value: str, name: str) -> None:
    for place, token in enumerate(path):
        token = token or str(len(document))
        if place == len(path) - 1:
            if token in document:
                raise ValueError(f"Parameter given twice: {name}")
            document[token] = value
        else:
            document = document.setdefault(token, {})
            if not isinstance(document, dict):
                raise ValueError(f"Parameter is a value and an object: {name}")


def _lists(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name == _NEVER_A_LIST:
        return value
    inside = {member: _lists(item, member) for member, item in value.items()}
    if list(inside) == [str(place) for place in range(len(inside))]:
        return list(inside.values())
    return inside
