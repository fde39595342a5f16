"""Problems as answers: `application/problem+json` (RFC 9457)."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from idem.outbox.domain.operation import Answer
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE, PROBLEMS, Problem
from idem.outbox.values.json_bytes import encoded

JSON: Final = "application/json"

PAUSED_RETRY_AFTER = 60.0
"""Seconds after which a client may try again where accept is paused: a person ends that, so not at once."""


class ProblemError(Exception):
    """Ends a request with a problem. `retry_after` in seconds, `errors` are (JSON pointer, text) pairs."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        intent: UUID | None = None,
        errors: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        self.problem = PROBLEMS[code]
        self.detail = detail
        self.intent = intent
        self.errors = tuple(errors)
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        self.status = status or self.problem.status
        super().__init__(f"{code}: {detail}")

    def answer(self) -> Answer:
        """The answer."""
        body: dict[str, Any] = {
            "type": self.problem.type,
            "title": self.problem.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.problem.code,
        }
        if self.intent is not None:
            body["intent"] = str(self.intent)
        if self.errors:
            body["errors"] = [{"pointer": pointer, "detail": text} for pointer, text in self.errors]
        headers = {"Content-Type": MEDIA_TYPE, **self.headers}
        if self.retry_after is not None:
            headers["Retry-After"] = retry_after(self.retry_after)
        # As the draft asks for a missing key: the page that says what is wanted.
        headers.setdefault("Link", f'<{self.problem.type}>; rel="describedby"; type="text/html"')
        return Answer(self.status, encoded(body), headers)


def retry_after(seconds: float) -> str:
    """`Retry-After` in its form of seconds (RFC 9110, 10.2.3): whole, at least 1."""
    return str(max(1, math.ceil(seconds)))


def page(problem: Problem) -> Answer:
    """The page behind a problem's type."""
    title, meaning, retry = (html.escape(text) for text in (problem.title, problem.meaning, problem.retry))
    written = (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title}</h1>\n<p><code>{problem.code}</code>, HTTP status {problem.status}</p>\n"
        f"<p>{meaning}</p>\n<h2>The same request again, with the same key</h2>\n<p>{retry}</p>\n</html>\n"
    )
    return Answer(200, written.encode(), {"Content-Type": "text/html; charset=utf-8"})
