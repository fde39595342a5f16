"""What a call tells its client: the same answers as the HTTP API's, as bytes that any framework can send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from idem.application.keyed_request import KeyedRequest
from idem.outbox.accept.status import Status
from idem.outbox.api import answers
from idem.outbox.api.answers import AnswerContext
from idem.outbox.domain.operation import Answer
from idem.outbox.http_server.problems import ProblemError

if TYPE_CHECKING:
    from starlette.responses import Response

NOT_HERE = frozenset({"location", "content-location"})
"""Headers that name an address of the HTTP API, which the application does not have."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is known."""

    answer: Answer


def reply(request: KeyedRequest, end: Status, *, repeated: bool, waited: float | None = None) -> Reply:
    """The answer to how a request stands; a problem (RFC 9457) is one too."""
    asked = AnswerContext(
        request.operation, "ietf", int(waited) if waited is not None and request.wait is not None else None
    )
    try:
        return _reply(answers.answer(asked, end, repeated=repeated))
    except ProblemError as error:
        return problem(error)


def problem(error: ProblemError) -> Reply:
    """A problem as an answer."""
    return _reply(error.answer())


def _reply(made: Answer) -> Reply:
    headers = {
        name.title() if name.islower() else name: value
        for name, value in made.headers.items()
        if name.lower() not in NOT_HERE
    }
    return Reply(Answer(made.status, made.body, headers))


def patience(request: KeyedRequest, wait: timedelta | float | None) -> float:
    """Seconds to wait: what the endpoint gives, and no more than its client wants (`Prefer: wait`)."""
    given = wait.total_seconds() if isinstance(wait, timedelta) else float(wait or 0.0)
    return given if request.wait is None else min(given, request.wait)


def response(answer: Answer) -> Response:
    """An answer as a response of Starlette, and so of FastAPI."""
    from idem.outbox.api import responses

    return responses.response(answer)
