"""`expand[]=latest_charge`: the object itself instead of its id."""

from collections.abc import Callable, Mapping
from typing import Any


def expanded(
    document: dict[str, Any], params: Mapping[str, Any], get: Callable[[str], dict[str, Any] | None]
) -> dict[str, Any]:
    """The document with the objects that `expand` names; a value that is not an id stays unchanged."""
    asked = params.get("expand", [])
    for path in asked if isinstance(asked, list) else []:
        document = _put(document, str(path).split("."), get)
    return document


def _put(value: Any, path: list[str], get: Callable[[str], dict[str, Any] | None]) -> Any:
    if isinstance(value, list):
        return [_put(item, path, get) for item in value]
    if not path:
        return (get(value) or value) if isinstance(value, str) else value
    if not isinstance(value, dict) or path[0] not in value:
        return value
    inner = value[path[0]]
    if isinstance(inner, str):
        inner = get(inner) or inner
    return {**value, path[0]: _put(inner, path[1:], get) if path[1:] else inner}
