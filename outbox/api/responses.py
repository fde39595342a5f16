"""Answers as Starlette responses. The decision does not depend on Starlette, because applications use other
frameworks."""

from starlette.responses import Response

from idem.outbox.domain.operation import Answer


def response(answer: Answer) -> Response:
    """The answer, byte for byte."""
    return Response(answer.body, answer.status, {name.lower(): value for name, value in answer.headers.items()})
