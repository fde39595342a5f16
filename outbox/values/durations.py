"""Durations as people write them: `250ms`, `5s`, `2m`, `1h`, `10d`; a plain number is seconds."""

import math
import re
from typing import Final

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

LONGEST: Final = 1000 * 365 * 86400.0
"""Seconds. A longer time leaves the years that a time stamp has, and what is due then could not be written down."""

FORM: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ms|s|m|h|d)?")


def parse(value: object) -> float:
    """Seconds of a duration: a text with a unit, or a plain number of seconds (also as text).

    Raises ValueError for another form, a negative duration, and one that is infinite or longer than `LONGEST`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a duration: write it as 250ms, 5s, 2m, 1h or 10d")
    if isinstance(value, str):
        match = FORM.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a duration: write it as 250ms, 5s, 2m, 1h or 10d")
        number, unit = match["number"], match["unit"] or "s"
        # Division keeps 250ms exactly at 0.25 where a factor of 0.001 would not.
        seconds = float(number) / 1000 if unit == "ms" else float(number) * UNITS[unit]
    else:
        seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{value!r} is not a duration: it must be 0 or more, and finite")
    if seconds > LONGEST:
        raise ValueError(f"{value!r} is not a duration: it is longer than a thousand years")
    return seconds


def text(seconds: float) -> str:
    """The shortest spelling that `parse` reads back to the same number of seconds."""
    if seconds == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        amount = seconds / UNITS[unit]
        if amount.is_integer() and amount * UNITS[unit] == seconds:
            return f"{int(amount)}{unit}"
    thousandths = seconds * 1000
    if thousandths.is_integer() and thousandths / 1000 == seconds:
        return f"{int(thousandths)}ms"
    # repr() may use an exponent, which no person writes in a duration.
    return f"{seconds:.17f}".rstrip("0") + "s" if seconds < 1e-4 else f"{seconds!r}s"


def rough(seconds: float) -> str:
    """A duration for people, in its two largest units: `3d 4h`, `12m 5s`, `-2h`."""
    sign, left, words = "-" if seconds < 0 else "", int(abs(seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount:
            words.append(f"{amount}{unit}")
    return sign + " ".join(words[:2]) if words else "0s"
