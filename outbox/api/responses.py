"""Answers as Starlette responses. The decision does not depend on Starlette, because applications use other
frameworks."""

from starlette.responses import Response

from idem.outbox.domain.operation import Answer

BODILESS = frozenset({204, 304})


def response(answer: Answer) -> Response:
    """The answer, byte for byte."""
    made = Response(answer.body, answer.status)
    if answer.status in BODILESS:
        del made.headers["content-length"]
    for name, value in answer.headers.items():
        made.headers[name] = value
    return made
