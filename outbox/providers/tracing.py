"""The trace of a client's request (W3C Trace Context).

idem sends it with every call about its row, and adds it to the log lines.

What is sent is the `traceparent` that the row was accepted with, unchanged, the same at each attempt: the provider's
span becomes a child of the client's own. idem makes no span of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from idem.outbox.domain.contract import FrozenRequest

HEADER: Final = "traceparent"
FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""traceparent of version 00, and what stays compatible with it."""

_of_row: ContextVar[str | None] = ContextVar("traceparent", default=None)


def valid(said: str | None) -> str | None:
    """The value, if it is one by the specification; what is not is ignored, as that demands."""
    return said if said is not None and FORM.fullmatch(said) else None


@contextmanager
def of_row(traceparent: str | None) -> Iterator[None]:
    """Within this block every call and every log line carries the trace of this row."""
    from structlog.contextvars import bound_contextvars

    trace = valid(traceparent)
    if trace is None:
        yield
        return
    token = _of_row.set(trace)
    try:
        with bound_contextvars(**{HEADER: trace}):
            yield
    finally:
        _of_row.reset(token)


def traced(request: FrozenRequest) -> FrozenRequest:
    """The request with the trace of the row that it is about, unless it has a header of that name already."""
    trace = _of_row.get()
    if trace is None or any(name.lower() == HEADER for name in request.headers):
        return request
    return replace(request, headers={**request.headers, HEADER: trace})
