"""What a client is told: each decision of accept as an answer of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from starlette.responses import Response

from idem.outbox.decisions import (
    Accepted,
    Expired,
    InProgress,
    Limited,
    Mismatch,
    NeedsOperator,
    Replay,
    Retrying,
    Unknown,
)
from idem.outbox.http.problems import ProblemError, encoded, retry_after
from idem.outbox.http.waiting import AtRest, End
from idem.outbox.operation import Answer, Operation

JSON: Final = "application/json"

SOON: Final = 1.0
OPERATORS_TIME: Final = 3600.0
"""Seconds until a client that waits for a person may ask again."""

STEPS: Final[Mapping[str, str]] = {
    "unfrozen": "queued",
    "waiting": "queued",
    "pending": "queued",
    "claimed": "calling",
    "unknown": "unknown",
    "awaiting": "awaiting_provider",
    "held": "at_rest",
}
"""The word for a client of each status of an outbox row."""

OURS: Final = frozenset(
    {
        "content-length", "transfer-encoding", "connection", "keep-alive", "date", "trailer", "upgrade",
        "idempotent-replayed", "idempotency-key-completed", "idempotency-key-expires", "idempotency-key-expired",
        "preference-applied", "content-location",
    }
)  # fmt: skip
"""Headers of a stored answer that belong to the message that carries it, or that say how it is carried."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asked for: the operation, whether it is the profile of Stripe, and how long it has waited."""

    operation: Operation
    profile: Literal["ietf", "stripe"]
    waited: int | None = None


def answer(asked: Asked, decision: End | Limited, *, repeated: bool) -> Response:
    """The answer to a decision. `repeated`: somebody has sent this request before. Raises ProblemError."""
    match decision:
        case Accepted(intent) | Retrying(intent):
            return accepted(asked, intent, "queued", SOON)
        case Replay(intent, stored, completed, expires):
            return _noted(asked, final(intent, stored, completed, expires, repeated=repeated))
        case InProgress(intent, "awaiting", wait, reference) if intent is not None:
            return accepted(asked, intent, STEPS["awaiting"], wait, reference)
        case InProgress(intent, step, wait):
            # Whoever accepted it, waited, and is still waiting has been accepted.
            if intent is not None and (not repeated or asked.operation.while_running == "accepted"):
                return accepted(asked, intent, STEPS[step or "pending"], wait)
            raise _problem(asked, "in_progress", "The first request with this key is still running.", intent, wait)
        case Unknown(intent, wait):
            raise _problem(
                asked, "outcome_unknown",
                "The call to the provider broke, and it may have acted. It is being found out, and not sent again.",
                intent, wait,
            )  # fmt: skip
        case NeedsOperator(intent, reasons):
            raise _problem(
                asked, "needs_operator",
                f"An operator has to decide about this request ({', '.join(reasons)}).", intent, OPERATORS_TIME,
            )  # fmt: skip
        case AtRest(intent):
            raise _problem(
                asked, "not_executed", "It is proven that nothing happened. The same request with the same key, sent "
                "again, is done.", intent, SOON,
            )  # fmt: skip
        case Mismatch(intent):
            raise _problem(
                asked, "key_reused", "This key was used for a request with other content.", intent,
                status=400 if asked.profile == "stripe" else None,
            )  # fmt: skip
        case Expired(intent):
            raise _problem(
                asked, "key_expired", f"The answer to this key is not kept any more; GET /v1/intents/{intent} "
                "says what became of it.", intent, headers={"Idempotency-Key-Expired": "true"},
            )  # fmt: skip
        case Limited():
            raise AssertionError("whoever set the limit knows when it ends")
        case _ as unlisted:
            assert_never(unlisted)


def accepted(asked: Asked, intent: UUID, step: str, wait: float, reference: str | None = None) -> Response:
    """202: it is in the database, and will be done."""
    body: dict[str, Any] = {
        "intent": str(intent),
        "operation": asked.operation.name,
        "state": "in_progress",
        "step": step,
    }
    if reference is not None:
        body["interim"] = {"reference": reference}
    headers = {"Location": location(intent), "Retry-After": retry_after(wait)}
    return _noted(asked, Response(encoded(body), 202, headers, media_type=JSON))


def final(intent: UUID, stored: Answer, completed: datetime, expires: datetime, *, repeated: bool) -> Response:
    """The stored answer, byte for byte."""
    response = Response(stored.body, stored.status)
    if stored.status in (204, 304):
        del response.headers["content-length"]
    for name, value in stored.headers.items():
        if name.lower() not in OURS:
            response.headers[name] = value
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    response.headers["Idempotency-Key-Completed"] = http_date(completed)
    response.headers["Idempotency-Key-Expires"] = http_date(expires)
    response.headers["Content-Location"] = location(intent)
    return response


def location(intent: UUID) -> str:
    """Where an intent can be looked at."""
    return f"/v1/intents/{intent}"


def http_date(moment: datetime) -> str:
    """IMF-fixdate (RFC 9110, 5.6.7)."""
    return format_datetime(moment, usegmt=True)


def _noted(asked: Asked, response: Response) -> Response:
    response.headers.update(_preference(asked))
    return response


def _preference(asked: Asked) -> dict[str, str]:
    return {} if asked.waited is None else {"Preference-Applied": f"wait={asked.waited}"}


def _problem(
    asked: Asked,
    code: str,
    detail: str,
    intent: UUID | None,
    wait: float | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemError:
    return ProblemError(
        code, detail, intent=intent, retry_after=wait, status=status, headers={**_preference(asked), **(headers or {})}
    )
