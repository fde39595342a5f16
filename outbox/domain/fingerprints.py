"""Fingerprints that say how they were composed, so that a key is compared by the rules that it was accepted under.

`v1:` is over the whole request, `v1-without["/at"]:` over what is left without these members, and `v1-of-…` says whose
key it is, beside the tenant's: of those callers alone who have this label. An operation may change which members it
leaves out, and whose its keys are, while keys are open or answered: a retry is then composed as the stored one was.
"""

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from idem.outbox.domain import keys
from idem.outbox.values import json_pointer
from idem.outbox.values.canonical import canonical

COMPOSED: Final = re.compile(r"v1(?:-of-([0-9a-f]{32}))?(?:-without(\[.*\]))?:[0-9a-f]{64}", re.DOTALL)


def of(
    operation: str,
    body: Any,
    left_out: Sequence[str] = (),
    path: str | None = None,
    query: str | Mapping[str, Any] | None = None,
    *,
    owner: str | None = None,
    written: str | None = None,
) -> str:
    """The fingerprint of a request without the members that the JSON pointers name. Raises BodyInvalid.

    `owner`: the label of those callers whose key alone it is; None: it is the tenant's. `written`: the canonical text
    of the whole body, where it is known.
    """
    whole = None if left_out else written
    digest = keys.fingerprint(operation, without(body, left_out), path, query, written=whole).removeprefix("v1")
    rule = f"-without{canonical(sorted(set(left_out))).decode()}" if left_out else ""
    return f"v1{'' if owner is None else f'-of-{_named(owner)}'}{rule}{digest}"


def left_out(stored: str) -> tuple[str, ...] | None:
    """What a stored fingerprint leaves out; None: it is not composed of members (a body that is not JSON)."""
    found = COMPOSED.fullmatch(stored)
    if found is None:
        return None
    return tuple(json.loads(found[2])) if found[2] else ()


def is_anothers(stored: str, caller: str | None) -> bool:
    """Whether a stored fingerprint is of other callers' key than of those with this label (None: without one)."""
    found = COMPOSED.fullmatch(stored)
    return found is not None and found[1] is not None and (caller is None or found[1] != _named(caller))


def composed_as(
    stored: str,
    operation: str,
    body: Any,
    path: str | None = None,
    query: str | Mapping[str, Any] | None = None,
    *,
    caller: str | None = None,
) -> str:
    """The fingerprint of a request, composed as a stored one is: they are equal where it is that request, and its key
    is one of this caller's. `caller`: the label of who asks."""
    owned, left = _rule(stored) or (False, ())
    return of(operation, body, left, path, query, owner=caller if owned else None)


def composed_otherwise(stored: str, own: str, caller: str | None = None) -> bool:
    """Whether a request whose fingerprint is `own` is to be composed anew before it is compared with a stored one.

    idem.count_decision counts no mismatch then, because the request is asked again. Who has no label is told at once of
    a key that is a label's.
    """
    rule, other = _rule(stored), _rule(own)
    return rule is not None and other is not None and rule != other and not (rule[0] and caller is None)


def _rule(fingerprint: str) -> tuple[bool, tuple[str, ...]] | None:
    found = COMPOSED.fullmatch(fingerprint)
    return None if found is None else (found[1] is not None, tuple(json.loads(found[2])) if found[2] else ())


def _named(label: str) -> str:
    # As long as it takes to tell labels apart; the text itself may be 200 characters of anything.
    return hashlib.sha256(label.encode()).hexdigest()[:32]


def without(params: Any, pointers: Sequence[str]) -> Any:
    """A copy of the params that lacks the members that the pointers name; what is not there is not missed."""
    if not pointers:
        return params
    left = copy.deepcopy(params)
    for each in pointers:
        *way, last = json_pointer.parse(each)
        parent = json_pointer.resolve(left, tuple(way))
        if isinstance(parent, dict):
            parent.pop(last, None)
    return left
