"""Fingerprints that say how they were composed, so that a key is compared by the rules that it was accepted under.

`v1:` is over the whole request, `v1-without["/at"]:` over what is left without these members. An operation may change
which members it leaves out while keys are open or answered: a retry is then composed as the stored one was.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from idem.outbox import keys, pointer
from idem.outbox.canonical import canonical

COMPOSED: Final = re.compile(r"v1(?:-without(\[.*\]))?:[0-9a-f]{64}", re.DOTALL)


def of(
    operation: str,
    body: Any,
    left_out: Sequence[str] = (),
    path: str | None = None,
    query: str | Mapping[str, Any] | None = None,
) -> str:
    """The fingerprint of a request without the members that the JSON pointers name. Raises BodyInvalid."""
    plain = keys.fingerprint(operation, without(body, left_out), path, query)
    if not left_out:
        return plain
    return f"v1-without{canonical(sorted(set(left_out))).decode()}{plain.removeprefix('v1')}"


def left_out(stored: str) -> tuple[str, ...] | None:
    """What a stored fingerprint leaves out; None: it is not composed of members (a body that is no JSON)."""
    found = COMPOSED.fullmatch(stored)
    if found is None:
        return None
    return tuple(json.loads(found[1])) if found[1] else ()


def is_of(
    stored: str, operation: str, body: Any, path: str | None = None, query: str | Mapping[str, Any] | None = None
) -> bool:
    """Whether a request is the one of a stored fingerprint, composed as that was."""
    rule = left_out(stored)
    return rule is not None and of(operation, body, rule, path, query) == stored


def without(params: Any, pointers: Sequence[str]) -> Any:
    """A copy of the params that lacks the members that the pointers name; what is not there is not missed."""
    if not pointers:
        return params
    left = copy.deepcopy(params)
    for each in pointers:
        *way, last = pointer.parse(each)
        parent = pointer.resolve(left, tuple(way))
        if isinstance(parent, dict):
            parent.pop(last, None)
    return left
