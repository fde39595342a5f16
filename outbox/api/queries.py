"""The query of a list: its parameters, each once, each checked. Everything else is a 400."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from starlette.requests import Request

from idem.outbox.api import reading
from idem.outbox.domain.keys import parse_key
from idem.outbox.http_server.problems import ProblemError
from idem.outbox.values.errors import KeyInvalid

LISTED = ("state", "operation", "key", "provider_key", "reference", "label", "since", "until", "before", "limit")
SEARCHED = ("provider_key", "reference", "label", "since", "until")
LONGEST = 1000
PAGE = 100
LARGEST_PAGE = 1000


def parameters(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters, all of them known. Raises ProblemError."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise ProblemError("query_invalid", f"Unknown parameter; known parameters are {', '.join(known)}.")
        if name in found:
            raise ProblemError("query_invalid", f"{name} was sent more than once.")
        found[name] = value
    return found


def one_of(name: str, value: str | None, allowed: list[Any]) -> str | None:
    """A value that is one of these. Raises ProblemError."""
    if value is not None and value not in allowed:
        raise ProblemError("query_invalid", f"{name} must be one of {', '.join(allowed) or 'nothing here'}.")
    return value


def key(value: str | None, operation: str | None) -> str | None:
    """The key of an operation. Raises ProblemError."""
    if value is None:
        return None
    if operation is None:
        raise ProblemError("query_invalid", "key belongs to an operation: send operation too.")
    try:
        return parse_key(value)
    except KeyInvalid as error:
        raise ProblemError("query_invalid", reading.sentence(error)) from None


def intent(name: str, value: str | None) -> UUID | None:
    """The id of an intent. Raises ProblemError."""
    try:
        return None if value is None else UUID(value)
    except ValueError:
        raise ProblemError("query_invalid", f"{name} must be the id of an intent.") from None


def search(query: dict[str, str]) -> dict[str, Any]:
    """The search terms: all of `SEARCHED`, or none. Raises ProblemError."""
    if not {*SEARCHED} & {*query}:
        return {}
    if "key" in query:
        raise ProblemError("query_invalid", f"key names one intent: omit {', '.join(SEARCHED)}.")
    key = {"provider_key": _provider_key(query.get("provider_key"))}
    texts = {name: _text(name, query.get(name)) for name in ("reference", "label")}
    return key | texts | {name: _moment(name, query.get(name)) for name in ("since", "until")}


def _provider_key(value: str | None) -> UUID | None:
    try:
        return None if value is None else UUID(value)
    except ValueError:
        raise ProblemError(
            "query_invalid", "provider_key must be the key of a call to a provider, which is a UUID."
        ) from None


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not (0 < len(value) <= LONGEST and "\0" not in value):
        raise ProblemError("query_invalid", f"{name} must be a text of 1 to {LONGEST} characters.")
    return value


def _moment(name: str, value: str | None) -> datetime | None:
    try:
        found = None if value is None else datetime.fromisoformat(value)
        if found is None or found.utcoffset() is not None:
            return None if found is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ProblemError("query_invalid", f"{name} must be a time with its offset, e.g. 2026-01-31T12:00:00Z.")


def limit(value: str | None) -> int:
    """How many of them. Raises ProblemError."""
    if value is None:
        return PAGE
    if not (value.isascii() and value.isdigit() and len(value) <= 6 and 1 <= int(value) <= LARGEST_PAGE):
        raise ProblemError("query_invalid", f"limit must be a whole number from 1 to {LARGEST_PAGE}.")
    return int(value)
