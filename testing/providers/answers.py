"""Answers that no provider would give, and pages of those who stand in between: made up, or drawn by hypothesis."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from idem.outbox.domain.contract import Response

EXAMPLES: Final = 200

STATUSES: Final = (*(int(each) for each in HTTPStatus if each >= 200), 0, 299, 444, 460, 499, 520, 522, 524, 530, 599)

FEW: Final = (200, 201, 202, 204, 207, 302, 400, 401, 402, 404, 409, 422, 429, 499, 500, 503, 0, 999)

PAGES: Final = (
    b"<html><head><title>403 Forbidden</title></head><body><h1>Request blocked</h1></body></html>",
    b"<!DOCTYPE html>\n<html><body>succeeded id=1 status=200 payment</body></html>",
    b"upstream connect error or disconnect/reset before headers",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
)

BODIES: Final = (
    b"", b" ", b"null", b"true", b"0", b'""', b"[]", b"{}", b"[[[[]]]]", b'{"id": null}', b'{"data": {}}',
    b'{"id": 1e400}', b'{"id": [1], "status": {"a": 1}}', b'{"status": "succeeded", "status": "declined"}',
    b'{"error": "no object"}', b'{"error": [1, 2]}', b'{"data": [null, 1, "a", {}], "has_more": true}',
    b'{"data": 5, "has_more": "yes", "links": {"next": 7}}', b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b'{"a":"\\ud800"}',
    b"[" * 5000, b'{"id":"' + b"x" * 5000 + b'"}', *PAGES,
)  # fmt: skip

HEADERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"content-type": "application/json"},
    {"Content-Type": "text/html", "Retry-After": "-5", "Link": '<>; rel="next"'},
    {"retry-after": "99999999999999999999", "link": "garbage", "date": "yesterday", "location": "//"},
)


def table() -> Iterator[Response]:
    """The fixed answers: statuses of every kind with every body, whole and cut."""
    for status in FEW:
        for number, body in enumerate(BODIES):
            yield Response(status, HEADERS[number % len(HEADERS)], body, complete=number % 5 != 4)


def for_each(look: Callable[[Response], None], real: tuple[bytes, ...] = ()) -> None:
    """Show every answer of the table, bodies of `real` answers under every status, and as many drawn ones where
    hypothesis is installed."""
    for response in table():
        look(response)
    for body in real:
        for status in STATUSES:
            look(Response(status, HEADERS[1], body))
    if importlib.util.find_spec("hypothesis") is not None:
        _drawn(look, real)


def _drawn(look: Callable[[Response], None], real: tuple[bytes, ...]) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    words = st.sampled_from(sorted({word for body in (*real, *BODIES) for word in _names(body)}) or ["id"])
    leaves: Any = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | words
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=8), inner, max_size=4),
        max_leaves=8,
    )
    bodies = st.binary(max_size=64) | values.map(lambda value: json.dumps(value).encode()) | st.sampled_from(BODIES)
    headers = st.dictionaries(
        st.sampled_from(["retry-after", "link", "content-type", "date", "location"]) | st.text(max_size=8),
        st.text(max_size=16),
        max_size=3,
    )
    answers = st.builds(Response, st.integers(0, 999), headers, bodies, st.booleans())

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(answers)
    def holds(response: Response) -> None:
        look(response)

    holds()


def _names(body: bytes) -> set[str]:
    """Members and words of a real answer, so that the drawn ones look like it."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return set()
    found: set[str] = set()

    def walk(value: Any) -> None:
        match value:
            case dict():
                for name, each in value.items():
                    found.add(name)
                    walk(each)
            case list():
                for each in value:
                    walk(each)
            case str() if len(value) <= 32:
                found.add(value)

    walk(value)
    return found
