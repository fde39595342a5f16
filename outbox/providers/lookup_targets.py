"""What a look-up may put into its address: our key, the provider's reference, and what the call itself was.

No I/O, and no clock: the time of the first send comes with the question.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from idem.outbox.domain.provider import Question
from idem.outbox.providers.template import OURS, Hole, Text, compile_text, fill, render_path
from idem.outbox.values.errors import Unrenderable

SLACK: Final = 300.0
"""Seconds that are taken off the time of the first send, so that the provider's clock need not agree with ours."""

TIMES: Final = frozenset({"sent_at", "sent_at_iso"})

SEGMENTS: Final = frozenset(f"segment.{number}" for number in range(1, 10))
"""The parts of the path of the call itself, e.g. /payments/{2}/refunds: what a call was about."""

WORDS: Final = frozenset({"key", "reference", "path", *TIMES, *SEGMENTS})
"""What `{idem.…}` may name in a look-up."""

PATH: Final = (OURS, "path")


def target(text: Text, question: Question) -> str | None:
    """The path and query to ask under; None if the row lacks what it needs. Raises Unrenderable."""
    words: dict[str, Any] = {}
    if question.reference is not None:
        words["reference"] = question.reference
    if asked := question.path.partition("?")[0]:
        words["path"] = asked
        words["segment"] = segments(asked)
    if question.sent_at is not None:
        words |= time_words("sent_at", question.sent_at - SLACK)
    known = {"key", *words, *(f"segment.{number}" for number in words.get("segment", ()))}
    if not needs(text) <= known:
        return None
    return filled(text, words, question.provider_key)


def filled(text: Text, words: Mapping[str, Any], provider_key: str = "") -> str:
    """The address. A path at its beginning stays one, everything else is a value. Raises Unrenderable."""
    if text and isinstance(text[0], Hole) and text[0].path == PATH:
        text = (str(words["path"]), *text[1:])
    path: str = fill(render_path(text, {OURS: words}), provider_key)
    return path


def segments(path: str) -> dict[str, str]:
    """The parts of a path by their number, from 1; those that are empty are none."""
    return {str(number): unquote(part) for number, part in enumerate(path.split("/")) if part}


def needs(text: Text) -> set[str]:
    """The names of ours in an address."""
    return {".".join(part.path[1:]) for part in text if isinstance(part, Hole) and part.path[0] == OURS}


def time_words(name: str, at: float) -> dict[str, Any]:
    """A time as whole POSIX seconds and, with `_iso` behind its name, in RFC 3339; both rounded down."""
    at = max(0, math.floor(at))
    return {name: at, f"{name}_iso": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def longest_prefix(prefixes: Iterable[str], subject: str) -> str | None:
    """The longest of these that the subject begins with."""
    return max((prefix for prefix in prefixes if subject.startswith(prefix)), key=len, default=None)


def address(name: str, path: str, ours: frozenset[str], what: str) -> set[str]:
    """The names of ours in the path of a question.

    Raises ValueError, which names the setting, for an address that no look-up can use.

    `what` are the words that it may have, for people.
    """
    try:
        text: Text = compile_text(path, ours)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    holes = [part for part in text if isinstance(part, Hole)]
    if not path.startswith(("/", "{idem.path}")):
        raise ValueError(f"{name}: it begins with a slash")
    if any(hole.path[0] != "idem" or hole.optional for hole in holes):
        raise ValueError(f"{name}: a look-up knows no params, only {what}")
    sample: dict[str, Any] = {"reference": "r", "path": "/p", "segment": {str(number): "s" for number in range(1, 10)}}
    for each in ("sent_at", "since", "until"):
        sample |= time_words(each, 0)
    try:
        filled(text, sample, "k")
    except Unrenderable as error:
        raise ValueError(f"{name}: {error}; a bracket is written %5B or %5D") from None
    return {".".join(hole.path[1:]) for hole in holes}
