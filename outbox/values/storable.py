"""Makes values from outside storable in PostgreSQL `text` and `jsonb` (docs/design.md, Settle).

One NUL or half a surrogate pair in one provider's answer would fail the statement that settles fifty others. The
functions here never raise: they replace, cut and note.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from idem.outbox.values import json_pointer
from idem.outbox.values.canonical import UNSTORABLE

REPLACEMENT: Final = "\ufffd"
ELLIPSIS: Final = "…"

MAX_TEXT: Final = 4096
"""Characters of one value or name."""
MAX_NESTING: Final = 16
MAX_TOTAL: Final = 65_536
"""Characters of all values and names together, each value counted with 8 more; what comes after is left out."""
MAX_DIGITS: Final = 1000
"""Digits of one number: `numeric` has an end, and so does Python's conversion to text."""


def text(value: object, limit: int = MAX_TEXT) -> str:
    """The value as text that a `text` column takes: NUL, lone surrogates and invalid UTF-8 become U+FFFD.

    At most `limit` characters, an ellipsis included where something was cut.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        # One byte more than could be shown, four bytes a character: a huge body is not decoded whole.
        clean = bytes(value[: 4 * limit + 4]).decode("utf-8", "replace")
    else:
        try:
            clean = str(value)
        except BaseException:  # a foreign __str__ may raise anything, SystemExit too
            clean = f"<{type(value).__name__}>"
    clean = UNSTORABLE.sub(REPLACEMENT, clean)
    return clean if len(clean) <= limit else clean[: max(0, limit - 1)] + ELLIPSIS[:limit]


def body(value: bytes, cap: int) -> bytes:
    """The bytes for a `bytea` column, at most `cap` of them. Nothing is replaced: bytes hold anything."""
    return bytes(value[:cap])


def fields(mapping: Mapping[Any, Any], notes: list[str] | None = None) -> dict[str, Any]:
    """The mapping as a dict that `json.dumps` writes and `jsonb` takes.

    Integers keep all their digits, decimals too (as a string where a double would not hold them). NaN and Infinity
    become null. Texts are cleaned and cut as by `text`; what is nested too deeply or comes after too much is cut.
    Each change appends a line with its JSON pointer to `notes`.
    """
    return _Cleaning(notes if notes is not None else []).mapping(mapping, ())


@dataclass(slots=True)
class _Cleaning:
    notes: list[str]
    left: int = MAX_TOTAL
    exhausted: bool = field(default=False, init=False)

    def mapping(self, value: Mapping[Any, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, item in value.items():
            name = self.text(key, (*path, text(key)))
            if name in clean:
                self.note(path, f"two members became the same name {name!r}; the later one is kept")
            if self.spent(path):
                break
            clean[name] = self.value(item, (*path, name))
        return clean

    def sequence(self, value: Any, path: tuple[str | int, ...]) -> list[Any]:
        clean: list[Any] = []
        for index, item in enumerate(value):
            if self.spent(path):
                break
            clean.append(self.value(item, (*path, index)))
        return clean

    def value(self, value: Any, path: tuple[str | int, ...]) -> Any:
        self.left -= 8
        match value:
            case None | bool():
                return value
            case str():
                return self.text(value, path)
            case int():
                return self.integer(value, path)
            case float():
                if math.isfinite(value):
                    return float(value)
                self.note(path, f"{value} became null")
                return None
            case Decimal():
                return self.decimal(value, path)
            case Mapping() | list() | tuple() if len(path) > MAX_NESTING:
                self.note(path, f"nested deeper than {MAX_NESTING}, cut")
                return ELLIPSIS
            case Mapping():
                return self.mapping(value, path)
            case list() | tuple():
                return self.sequence(value, path)
            case _:
                return self.text(value, path)

    def text(self, value: object, path: tuple[str | int, ...]) -> str:
        clean = text(value)
        if clean != value:
            self.note(path, "the text was changed so that it can be stored")
        self.left -= len(clean)
        return clean

    def integer(self, value: int, path: tuple[str | int, ...]) -> Any:
        if value.bit_length() <= 3 * MAX_DIGITS:
            return int(value)
        self.note(path, f"an integer of more than {MAX_DIGITS} digits was left out")
        return None

    def decimal(self, value: Decimal, path: tuple[str | int, ...]) -> Any:
        if not value.is_finite():
            self.note(path, f"{value} became null")
            return None
        written = str(value)
        if len(written) <= 32 and Decimal(repr(float(value))) == value:
            return float(value)
        return self.text(written, path)

    def spent(self, path: tuple[str | int, ...]) -> bool:
        if self.left > 0:
            return False
        if not self.exhausted:
            self.exhausted = True
            self.note(path, "too much; the rest was left out")
        return True

    def note(self, path: tuple[str | int, ...], what: str) -> None:
        if len(self.notes) < 20:
            self.notes.append(f"{text(json_pointer.render(path), 200) or 'the top'}: {what}")
