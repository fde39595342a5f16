"""idem's errors and problem pages in an application of FastAPI or Starlette."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from idem.outbox.application.misuse import Misuse
from idem.outbox.errors import (
    AcceptPaused,
    BodyInvalid,
    ParamsInvalid,
    RetryTransaction,
    StoreUnavailable,
    Unrenderable,
)
from idem.outbox.http import problems, reading
from idem.outbox.http.problems import PAUSED_RETRY_AFTER, ProblemError
from idem.outbox.http.responses import response
from idem.outbox.problems import PROBLEMS

RETRY_AFTER = 1.0
"""Seconds after which a client may send its request again."""


def install(app: Any) -> None:
    """Exception handlers, and the pages behind the problems' types. Raises Misuse for another framework."""
    if not hasattr(app, "add_exception_handler"):
        raise Misuse(
            f"install() is for FastAPI and Starlette, and this is {type(app).__name__}: answer RetryTransaction and "
            "StoreUnavailable with 503 and Retry-After there"
        )
    app.add_exception_handler(RetryTransaction, _again)
    app.add_exception_handler(StoreUnavailable, _again)
    app.add_exception_handler(AcceptPaused, _paused)
    for params in (ParamsInvalid, BodyInvalid, Unrenderable):
        app.add_exception_handler(params, _params)
    app.add_exception_handler(ProblemError, _problem)
    app.router.routes.append(Route("/problems/{code}", _page))


async def _again(_: Request, error: Exception) -> Response:
    told = ProblemError(
        "store_unavailable",
        "The database cannot answer now. Send the same request again, with the same key: it happens once at most.",
        retry_after=RETRY_AFTER,
    )
    return response(told.answer())


async def _paused(_: Request, error: Exception) -> Response:
    told = ProblemError("paused", "New requests of this kind are not taken now.", retry_after=PAUSED_RETRY_AFTER)
    return response(told.answer())


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return response(error.answer())


async def _params(_: Request, error: Exception) -> Response:
    match error:
        case ParamsInvalid():
            errors = error.problems
        case BodyInvalid():
            errors = [(error.pointer, error.message)]
        case _:
            errors = [("", str(error))]
    return response(ProblemError("params_invalid", reading.sentence(error), errors=errors).answer())


async def _page(request: Request) -> Response:
    found = PROBLEMS.get(request.path_params["code"])
    if found is None:
        return response(ProblemError("not_found", "There is no such problem.").answer())
    return response(problems.page(found))
