"""Suggests the nearest known name for an unknown one, or lists all known names."""

import difflib
from collections.abc import Collection
from typing import Final

MOST: Final = 20
"""Names that are listed where none is near."""


def nearest(name: str, known: Collection[str]) -> str:
    """The end of a message: the nearest of the known names, or up to `MOST` of them, without a full stop."""
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"Did you mean {close[0]}?"
    if not known:
        return "None is configured"
    listed = sorted(known)
    more = f" and {len(listed) - MOST} more" if len(listed) > MOST else ""
    return f"Known: {', '.join(listed[:MOST])}{more}"
