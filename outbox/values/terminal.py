"""Makes text safe for a terminal: control characters from outside must not act there."""

import json
import os
import re
from collections.abc import Callable
from typing import Any, Final, TextIO

LOST: Final = "\ufffd"
"""Stands for a character that is not shown."""

# Control characters of both sets, but for those with which we draw ourselves: line ends, colours, a table that is shown
# again. What strangers have sent goes through `printable`, which leaves none. Then marks that change the direction of
# what follows, separators that some programs take for line ends, and halves of characters.
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    "|\x1b(?!\\[[0-9;?]*[mAHJKhl])"
)
_BEYOND_ASCII: Final = re.compile("[^\x20-\x7e\n]")


def safe(text: str) -> str:
    """The text without characters that move the cursor, colour, rename the window, or turn the direction around."""
    return _ACTING.sub(LOST, text)


def printable(text: str) -> str:
    """The text in one line, without any character that is not seen, colours included: for what strangers have sent."""
    return text if text.isprintable() else "".join(c if c.isprintable() else LOST for c in text)


def encoded(data: Any, *, default: Callable[[Any], Any], indent: int | None = None, ascii: bool = False) -> str:
    """JSON in which every character that is not seen is escaped, so that nothing is lost and nothing acts."""
    text = json.dumps(data, default=default, ensure_ascii=ascii, indent=indent)
    return _BEYOND_ASCII.sub(lambda found: found[0] if found[0].isprintable() else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def coloured(stream: TextIO) -> bool:
    """Whether colours may be written there: a terminal that shows them, and no NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
