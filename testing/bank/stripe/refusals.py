"""Errors in Stripe's form, with the headers that classify them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from idem.testing.bank import answers
from idem.testing.bank.answers import BankAnswer, encoded

RETRY = "stripe-should-retry"


class StripeError(Exception):
    """An error in answer to a request. `executed`: the request was executed, so a key keeps the answer."""

    def __init__(self, status: int, error: Mapping[str, Any], *, executed: bool = False) -> None:
        super().__init__(error.get("message"))
        self.status = status
        self.error = error
        self.executed = executed

    @property
    def body(self) -> bytes:
        return encoded({"error": self.error})

    @classmethod
    def invalid(
        cls, message: str, code: str | None = None, param: str | None = None, *, executed: bool = False
    ) -> Self:
        """400: the request is invalid, or (`executed`) the object's status does not allow it."""
        error: dict[str, Any] = {"type": "invalid_request_error", "message": message}
        if code is not None:
            error.update(code=code, doc_url=f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}")
        if param is not None:
            error["param"] = param
        return cls(400, error, executed=executed)

    @classmethod
    def missing(cls, kind: str, id: str, param: str) -> Self:
        """404: there is no such object."""
        refusal = cls.invalid(f"No such {kind}: '{id}'", "resource_missing", param)
        refusal.status = 404
        return refusal

    @classmethod
    def no_such_place(cls, method: str, path: str) -> Self:
        """404: there is no such URL."""
        refusal = cls.invalid(f"Unrecognized request URL ({method}: {path}).")
        refusal.status = 404
        return refusal


def declined(members: Mapping[str, Any], code: str = "card_declined") -> dict[str, Any]:
    """The error for a declined card."""
    known: dict[str, Any] = {
        "type": "card_error",
        "code": code,
        "message": "Your card was declined.",
        "doc_url": f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}",
    }
    if code == "card_declined":
        known["decline_code"] = "generic_decline"
    return {**known, **members}


def mismatch(key: str) -> BankAnswer:
    """400: the key was used for a different request."""
    message = (
        "Keys for idempotent requests can only be used with the same parameters they were first used with. "
        f"Try using a key other than '{key}' if you meant to execute a different request."
    )
    return BankAnswer(400, encoded({"error": {"type": "idempotency_error", "message": message}}), {RETRY: "false"})


def in_flight() -> BankAnswer:
    """409: the first request with this key has not ended."""
    return dressed(answers.in_flight())


def dressed(answer: BankAnswer) -> BankAnswer:
    """An error of the bank (a fault, a wrong token) in Stripe's words; every other answer unchanged."""
    if answer.status < 400:
        return answer
    try:
        code = json.loads(answer.body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return answer
    if code not in _WORDS:
        return answer
    error, retry = _WORDS[code]
    headers = {**answer.headers, **({RETRY: retry} if retry is not None else {})}
    return replace(answer, body=encoded({"error": error}), headers=headers)


def _error(type: str, message: str, code: str | None = None) -> dict[str, Any]:
    return {"type": type, "message": message, **({} if code is None else {"code": code})}


# For each code of the bank's errors: Stripe's error, and the value of `Stripe-Should-Retry`, if any.
_WORDS: Mapping[str, tuple[Mapping[str, Any], str | None]] = {
    "invalid_token": (_error("invalid_request_error", "Invalid API Key provided."), None),
    "rate_limited": (_error("invalid_request_error", "Too many requests hit the API too quickly.", "rate_limit"), None),
    "lock_timeout": (
        _error("invalid_request_error", "This object cannot be accessed right now.", "lock_timeout"),
        "true",
    ),
    "unavailable": (_error("api_error", "The API is temporarily unavailable."), None),
    "internal_error": (_error("api_error", "An unknown error occurred on our side."), None),
    "invalid_request": (_error("invalid_request_error", "The request is not understood.", "parameter_unknown"), None),
    "idempotency_key_in_use": (
        _error(
            "invalid_request_error",
            "There is currently another in-progress request using this idempotent key.",
            "idempotency_key_in_use",
        ),
        "true",
    ),
}
