"""Patterns of the paths of calls: whole segments, a star for any one of them, `**` at the end for all that follow."""

from collections.abc import Iterable, Sequence

REST = "**"


def nearest(patterns: Iterable[str], path: str) -> str | None:
    """The pattern that the path begins with: the longest, and of two as long the one with fewer stars."""
    segments = split(path)
    fitting = [pattern for pattern in patterns if _fit(split(pattern), segments[: len(split(pattern))])]
    return max(fitting, key=lambda pattern: (len(split(pattern)), -pattern.count("*")), default=None)


def listed(patterns: Iterable[str], path: str) -> bool:
    """Whether a whole path is in a list of patterns; one with `!` takes paths out again, the last that fits counts."""
    found = False
    for pattern in patterns:
        out = pattern.startswith("!")
        if _fit(split(pattern.removeprefix("!")), split(path)):
            found = not out
    return found


def split(path: str) -> list[str]:
    """The segments of a path without its query; none of an empty one."""
    words = path.partition("?")[0].strip("/")
    return words.split("/") if words else []


def is_pattern(text: str) -> bool:
    """Whether a text can be a pattern: it begins with a slash, and stars stand alone in their segments."""
    words = split(text)
    return text.startswith("/") and all(
        "*" not in word or word == "*" or (word == REST and place == len(words)) for place, word in enumerate(words, 1)
    )


def _fit(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    if pattern and pattern[-1] == REST:
        pattern = pattern[:-1]
        if len(segments) <= len(pattern):
            return False
        segments = segments[: len(pattern)]
    return len(pattern) == len(segments) and all(a in ("*", b) for a, b in zip(pattern, segments, strict=True))
