"""idem's errors and problem pages in an application of FastAPI, Starlette or Flask."""

from collections.abc import Callable
from typing import Any, Final

from idem.application.misuse import Misuse
from idem.outbox.api import answers, reading
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.problem_catalogue import PROBLEMS
from idem.outbox.http_server import problems
from idem.outbox.http_server.problems import PAUSED_RETRY_AFTER, ProblemError
from idem.outbox.values.errors import (
    AcceptPaused,
    BodyInvalid,
    ParamsInvalid,
    RetryTransaction,
    StoreUnavailable,
    Unrenderable,
    Unserved,
)

RETRY_AFTER = 1.0
"""Seconds after which a client may send its request again."""

ERRORS: Final[tuple[type[Exception], ...]] = (
    RetryTransaction, StoreUnavailable, AcceptPaused, ParamsInvalid, BodyInvalid, Unrenderable, Unserved,
    ProblemError,
)  # fmt: skip


def install(app: Any) -> None:
    """Exception handlers, and the pages behind the problems' types. Raises Misuse for another framework."""
    if hasattr(app, "add_exception_handler"):
        _starlette(app)
    elif hasattr(app, "register_error_handler"):
        _flask(app)
    else:
        raise Misuse(
            f"install() is for FastAPI, Starlette and Flask, and this is {type(app).__name__}: answer RetryTransaction "
            "and StoreUnavailable with 503 and Retry-After there"
        )


def _starlette(app: Any) -> None:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from idem.outbox.api.responses import response

    async def failed(_: Request, error: Exception) -> Response:
        return response(answer_to(error))

    async def page(request: Request) -> Response:
        return response(page_of(request.path_params["code"]))

    for each in ERRORS:
        app.add_exception_handler(each, failed)
    app.router.routes.append(Route("/problems/{code}", page))


def _flask(app: Any) -> None:
    def answered(answer: Answer) -> tuple[bytes, int, dict[str, str]]:
        return answer.body, answer.status, dict(answer.headers)

    failed: Callable[[Exception], Any] = lambda error: answered(answer_to(error))  # noqa: E731
    for each in ERRORS:
        app.register_error_handler(each, failed)
    app.add_url_rule("/problems/<code>", "idem_problem", lambda code: answered(page_of(code)))


def answer_to(error: Exception) -> Answer:
    """The answer to the client for one of `ERRORS`."""
    match error:
        case ProblemError():
            return error.answer()
        case Unserved(intent_id=intent):
            found = answers.unserved(intent)
        case AcceptPaused():
            found = ProblemError(
                "paused", "New requests of this kind are not taken now.", retry_after=PAUSED_RETRY_AFTER
            )
        case ParamsInvalid():
            found = ProblemError("params_invalid", reading.sentence(error), errors=error.problems)
        case BodyInvalid():
            errors = [(error.pointer, error.message)]
            found = ProblemError("params_invalid", reading.sentence(error), errors=errors)
        case Unrenderable():
            found = ProblemError("params_invalid", reading.sentence(error), errors=[("", str(error))])
        case _:
            found = ProblemError(
                "store_unavailable",
                "The database cannot answer now. Send the same request again with the same key: it happens at most "
                "once.",
                retry_after=RETRY_AFTER,
            )
    return found.answer()


def page_of(code: str) -> Answer:
    """The page behind a problem's type."""
    found = PROBLEMS.get(code)
    if found is None:
        return ProblemError("not_found", "No problem has this code.").answer()
    return problems.page(found)
