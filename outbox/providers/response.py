"""A provider's response as it is read: the body as a JSON value, header names in lower case.

More tolerant than `idem.outbox.values.canonical`, because we cannot send it back; but whatever leaves a doubt about
what the provider says (cut short, not JSON, a member twice) is unreadable, and unreadable is never a proof.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

from idem.outbox.domain.contract import Response
from idem.outbox.values import json_pointer
from idem.outbox.values.canonical import MAX_VALUES, check_structure
from idem.outbox.values.errors import BodyInvalid
from idem.outbox.values.json_pointer import MISSING, Tokens

MAX_REFERENCE: Final = 255
"""Characters. A longer reference is none: cut short it would name something else."""

MAX_INTEGER_DIGITS: Final = 400
MAX_NESTING: Final = 950
"""Of an event: as deep as the parser goes where Python allows 1000 calls, although a newer one would allow more."""

VISIBLE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")


class Body(Enum):
    """The type of `UNREADABLE`, which no pointer finds anything in."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Body.UNREADABLE


@dataclass(frozen=True, slots=True)
class Document:
    """One response. `body` is a JSON value, or `UNREADABLE`; `blank`: there is no body at all (202, 204)."""

    status: int
    headers: Mapping[str, str]
    body: Any
    complete: bool = True
    blank: bool = False

    @property
    def readable(self) -> bool:
        return self.complete and self.body is not UNREADABLE

    def find(self, tokens: Tokens | None) -> Any:
        """What the pointer finds in the body, or `MISSING`."""
        return json_pointer.resolve(self.body, tokens) if self.readable else MISSING


def read(response: Response) -> Document:
    """The response, read. Never raises."""
    headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
    value: Any = _json(response.body) if response.complete else UNREADABLE
    return Document(response.status, headers, value, response.complete, blank=not response.body.strip())


def reference(value: Any) -> str | None:
    """A provider's reference: a string or an integer, digit for digit. None for a value that cannot name an object."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and len(value) <= MAX_REFERENCE and VISIBLE.fullmatch(value):
        return value
    return None


def word(value: Any) -> str | None:
    """A status or code: a string, a number or a truth value, as text. None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return reference(value) if isinstance(value, str | int) else None


def read_event(body: bytes) -> Any:
    """The JSON value of an event, or `UNREADABLE`. Never raises.

    A member that appears twice is as good as unsaid, and spoils nothing beside it: whoever signed these bytes will
    send no others. What is nested deeper than 950 or has more than 100,000 values is not read.
    """
    return _json(body, _doubtful_members)


class _Doubtful:
    """In place of a member that was said twice: it is there, and equals nothing."""

    def __str__(self) -> str:
        return "said twice"


def _doubtful_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        members[name] = _Doubtful() if name in members else value
    return members


def _json(body: bytes, members: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None) -> Any:
    try:
        text = body.decode("utf-8-sig")
        if members is not None:
            check_structure(text, MAX_NESTING, MAX_VALUES)
        return json.loads(
            text,
            object_pairs_hook=members or _members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=lambda name: None,
        )
    except (ValueError, RecursionError, BodyInvalid):
        return UNREADABLE


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member appears twice")
    return members


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise ValueError("an integer that long is not a number of anything")
    return int(text)


def _number(text: str) -> float | str:
    # A number that a double would round stays as its digits: an amount or id must not change on its way through us.
    if len(text) > MAX_INTEGER_DIGITS:
        return text
    double = float(text)
    try:
        return double if Decimal(text) == Decimal(repr(double)) else text
    except InvalidOperation:
        return text
