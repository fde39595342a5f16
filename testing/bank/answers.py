"""The bank's answers and its error bodies."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BankAnswer:
    """What the bank answers, before a fault changes the delivery. `effect`: `made`, `replayed`, `canceled` or None.
    `own`: the bank answers, not a proxy in front of it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: str | None = None
    payment: str | None = None
    own: bool = True


def encoded(content: Mapping[str, Any]) -> bytes:
    """The content as JSON bytes."""
    return json.dumps(content, separators=(",", ":")).encode()


def refusal(status: int, code: str, message: str, *, type: str = "invalid_request_error", **headers: str) -> BankAnswer:
    """An error in the bank's own form. The names of headers have `_` for `-`."""
    content = {"error": {"type": type, "code": code, "message": message}}
    return BankAnswer(status, encoded(content), {name.replace("_", "-"): value for name, value in headers.items()})


def by_fault(name: str, seconds: float | None) -> BankAnswer:
    """The answer that a fault gives instead of the real one: `401`, `409`, `422`, `429`, `lock_timeout`, `503`, `500`,
    `html_403`."""
    if name == "html_403":
        page = b"<html><head><title>403 Forbidden</title></head><body><h1>Request blocked</h1></body></html>"
        return BankAnswer(403, page, {"content-type": "text/html"}, own=False)
    status, code, message, type, waits = _BY_FAULT[name]
    return refusal(status, code, message, type=type, **({"retry_after": str(math.ceil(seconds or 0))} if waits else {}))


def in_flight() -> BankAnswer:
    """The first request with this key has not ended."""
    return by_fault("409", None)


def unauthorized() -> BankAnswer:
    """No account has this token."""
    return by_fault("401", None)


_BY_FAULT = {
    "401": (401, "invalid_token", "No account has this token.", "authentication_error", False),
    "409": (409, "idempotency_key_in_use", "A request with this key is running.", "idempotency_error", False),
    "lock_timeout": (429, "lock_timeout", "The object is in use.", "rate_limit_error", False),
    "422": (422, "invalid_request", "The request is not understood.", "invalid_request_error", False),
    "429": (429, "rate_limited", "Too many requests.", "rate_limit_error", True),
    "503": (503, "unavailable", "Try again later.", "api_error", True),
    "500": (500, "internal_error", "Something went wrong.", "api_error", False),
}
"""HTTP status, code, message and type of the error, and whether it has `retry-after`."""
