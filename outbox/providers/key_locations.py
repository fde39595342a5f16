"""Finds where a frozen request has its provider key; this decides whether a look-up can find the call."""

import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.providers.body_encoding import is_form

OF_PATHS: Final = "path of "
VERSION: Final = re.compile(r"v[0-9]+(\.[0-9]+)*")
DEEPEST: Final = 64
"""Levels of a body that are read; what is deeper has its key in no place of its own."""


def places(request: FrozenRequest, provider_key: str) -> frozenset[str]:
    """The places of the key: method, header names, numbers of path segments, names of query and form, JSON
    pointers; and the shape of the path.

    Two requests of one operation that have it in the same places are found by the same look-up. What stands there
    beside the key, and all that has no key, is left out: it differs from call to call. An item of a list counts as any.
    """
    path, _, query = request.path.partition("?")
    found = {f"method {request.method}", *shape(path)}
    found |= {f"header {name.lower()}" for name, value in request.headers.items() if provider_key in value}
    found |= {f"path {number}" for number, part in enumerate(path.split("/")) if provider_key in part}
    found |= {f"query {name}" for name, value in parse_qsl(query, keep_blank_values=True) if provider_key in value}
    if provider_key.encode() not in request.body:
        return frozenset(found)
    if is_form(request.headers):
        members = parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True)
        return frozenset(found | {f"form {name}" for name, value in members if provider_key in value})
    try:
        content = json.loads(request.body)
    except (ValueError, RecursionError):
        return frozenset(found | {"body"})
    return frozenset(found | set(_pointers(content, provider_key, "")))


def shape(path: str) -> set[str]:
    """What of a path is the same in all calls of an operation, whatever its params are: how many segments it has, and
    the version of the API. A call under another one is in no list of this one."""
    parts = path.split("/")
    return {f"{OF_PATHS}{len(parts) - 1} segments", *(f"{OF_PATHS}{each}" for each in parts if VERSION.fullmatch(each))}


def of_path(found: frozenset[str]) -> frozenset[str]:
    """What of the places tells which API the call was made to; the rest says where it has its key."""
    return frozenset(each for each in found if each.startswith(OF_PATHS))


def _pointers(thing: Any, key: str, at: str) -> list[str]:
    if at.count("/") > DEEPEST:
        return []
    if isinstance(thing, str):
        return [f"body {at}"] if key in thing else []
    if isinstance(thing, list):
        return [found for each in thing for found in _pointers(each, key, f"{at}/*")]
    if isinstance(thing, dict):
        inside = [found for name, each in thing.items() for found in _pointers(each, key, f"{at}/{name}")]
        return inside + [f"body {at} (a name)" for name in thing if key in name]
    return []
