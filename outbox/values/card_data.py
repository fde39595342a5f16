"""Card numbers and their security codes in params, which must not be stored (PCI DSS 3.3: not even encrypted)."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from idem.outbox.values import json_pointer

NAMES: Final = frozenset(
    {
        "cardnumber", "creditcardnumber", "pan", "cvv", "cvv2", "cvc", "cvc2", "cvn", "csc", "cardcode",
        "securitycode", "cardsecuritycode", "cardverificationvalue", "cardverificationcode",
    }
)  # fmt: skip
"""Names of members, in small letters without separators."""

NUMBER: Final = re.compile(r"[2-6][0-9]{3}(?:[ -]?[0-9]){9,15}")
"""13 to 19 digits that begin as the big networks' do, together or in groups."""


MOST: Final = 20
"""Findings that are told: a body of nothing else would make an answer that is larger than it."""


def find(params: Any) -> list[tuple[str, str]]:
    """What looks like card data, the first 20: JSON pointers, each with what it looks like. No value is quoted."""
    if not _may_have(params):
        return []
    return [(json_pointer.render(path), what) for path, what in islice(_walk(params, ()), MOST)]


def _may_have(value: Any) -> bool:
    """Whether there may be something to find: nearly all params have nothing, and need no way to it."""
    kind = type(value)
    if kind is str:
        return NUMBER.fullmatch(value) is not None
    if kind is int:
        return bool(value >= 10**12)
    if value is None or kind is bool or kind is float:
        return False
    if kind is dict:
        return any(_is_named(name) or _may_have(item) for name, item in value.items())
    return kind is not list or any(map(_may_have, value))


def _is_named(name: object) -> bool:
    said = str(name).lower()
    return (said if said.isalnum() and said.isascii() else re.sub(r"[^a-z0-9]", "", said)) in NAMES


def _walk(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match value:
        case dict():
            for name, item in value.items():
                if _is_named(name) and item not in (None, ""):
                    yield (*path, name), "the field name of a card number or a security code"
                else:
                    yield from _walk(item, (*path, name))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _walk(item, (*path, index))
        case str() | int() if not isinstance(value, bool):
            if is_number(str(value)):
                yield path, "the digits of a card number"


def is_number(text: str) -> bool:
    """Whether this text is the digits of a card number and nothing else."""
    return NUMBER.fullmatch(text) is not None and _luhn(re.sub(r"[ -]", "", text))


def _luhn(digits: str) -> bool:
    # ISO/IEC 7812-1, annex B.
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0
