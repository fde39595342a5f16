"""Times as providers write them: POSIX seconds or milliseconds, or RFC 3339. No I/O."""

import math
from datetime import UTC, datetime
from typing import Any, Final

MILLISECONDS: Final = 1e11
"""From here on a number is taken for milliseconds: as seconds it would be the year 5138."""


def moment(value: Any) -> float | None:
    """POSIX seconds; None for a value that is not a time. A text without a zone is UTC."""
    match value:
        case bool():
            return None
        case int() | float():
            return _number(value)
        case str():
            try:
                return _number(float(value))
            except ValueError:
                return _text(value)
        case _:
            return None


def _number(value: float) -> float | None:
    # An integer of hundreds of digits does not fit into a float.
    if not 0 <= value < 1e15 or not math.isfinite(value):
        return None
    return value / 1000 if value >= MILLISECONDS else float(value)


def _text(value: str) -> float | None:
    try:
        found = datetime.fromisoformat(value.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
