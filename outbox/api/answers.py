"""Turns each decision of accept into an HTTP answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from idem.outbox.accept.status import AtRest, Status
from idem.outbox.domain import decisions, fingerprints
from idem.outbox.domain.operation import Answer, OperationSpec
from idem.outbox.http_server.problems import JSON, ProblemError, retry_after
from idem.outbox.values.json_bytes import encoded

SOON: Final = 1.0
OPERATORS_TIME: Final = 3600.0
"""Seconds until a client that waits for a person may ask again."""

PERSONS_TIME: Final = 60.0
"""Seconds until a client whose request waits for an approval may ask again."""

ANOTHERS: Final = "Another program of your account used this key: its token has another label."

SHOWN_STATUS: Final[Mapping[str, str]] = {
    "approval": "waiting_for_approval",
    "unfrozen": "queued",
    "waiting": "waiting_for_order",
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
class AnswerContext:
    """What the client asked for: the operation, whether it is the profile of Stripe, how long it has waited, and who it
    is by the label of its token."""

    operation: OperationSpec
    profile: Literal["ietf", "stripe"]
    waited: int | None = None
    caller: str | None = None


def answer(asked: AnswerContext, decision: Status | decisions.Limited, *, repeated: bool) -> Answer:
    """The answer to a decision. `repeated`: this request was sent before. Raises ProblemError."""
    match decision:
        case decisions.Accepted(intent, _, status) | decisions.Retrying(intent, status):
            return accepted(asked, intent, SHOWN_STATUS[status], _wait(status, SOON))
        case decisions.Replay(intent, stored, completed, expires):
            return _noted(asked, final(intent, stored, completed, expires, repeated=repeated))
        case decisions.InProgress(intent, "awaiting", wait, reference, interim) if intent is not None:
            # A row that was awaiting before there were interim answers has its reference only.
            shown = {"reference": reference} if interim is None and reference is not None else interim
            return accepted(asked, intent, SHOWN_STATUS["awaiting"], wait, shown)
        case decisions.InProgress(intent, "approval", wait) if intent is not None:
            # The client waits for a person: its retry repeats nothing that runs.
            return accepted(asked, intent, SHOWN_STATUS["approval"], _wait("approval", wait))
        case decisions.InProgress(intent, status, wait):
            # Whoever accepted it, waited, and is still waiting has been accepted.
            if intent is not None and (not repeated or asked.operation.while_running == "accepted"):
                return accepted(asked, intent, SHOWN_STATUS[status or "pending"], wait)
            raise _problem(asked, "in_progress", "The first request with this key is still running.", intent, wait)
        case decisions.Unknown(intent, wait):
            raise _problem(
                asked, "outcome_unknown",
                "The call to the provider broke, and the provider may have acted. idem is finding out what happened "
                "and does not send it again.",
                intent, wait,
            )  # fmt: skip
        case decisions.NeedsOperator(intent, reasons):
            raise _problem(
                asked, "needs_operator",
                f"An operator must decide about this request ({', '.join(reasons)}).", intent, OPERATORS_TIME,
            )  # fmt: skip
        case AtRest(intent):
            raise _problem(
                asked, "not_executed",
                OPEN_STEP.format(intent=intent) if asked.operation.steps else
                "Nothing happened at the provider; this is proven. Send the same request again with the same key to "
                "run it.", intent, SOON,
            )  # fmt: skip
        case decisions.Mismatch(intent, stored):
            anothers = fingerprints.is_anothers(stored, asked.caller)
            raise _problem(
                asked, "key_reused", ANOTHERS if anothers else "This key was used for a request with other content.",
                intent,
                status=400 if asked.profile == "stripe" else None,
            )  # fmt: skip
        case decisions.Expired(intent):
            raise _problem(
                asked, "key_expired", f"The answer to this key is no longer kept; GET /v1/intents/{intent} shows how "
                                      "it ended.", intent, headers={"Idempotency-Key-Expired": "true"},
            )  # fmt: skip
        case decisions.Limited():
            raise AssertionError("whoever set the limit knows when it ends")
        case _ as unlisted:
            assert_never(unlisted)


OPEN_STEP: Final = (
    "The open step was not executed; this is proven. A step that GET /v1/intents/{intent} shows as succeeded is done: "
    "a new key would do it again. Send the same request again with the same key to go on."
)
"""Of an operation of several steps, which may have done the first ones."""


def accepted(asked: AnswerContext, intent: UUID, status: str, wait: float, interim: Any = None) -> Answer:
    """202: the request is stored and will run; with the interim answer once the provider has accepted it."""
    body: dict[str, Any] = {
        "intent": str(intent),
        "operation": asked.operation.name,
        "state": "in_progress",
        "status": status,
    }
    if interim is not None:
        body["interim"] = interim
    headers = {"Content-Type": JSON, "Location": location(intent), "Retry-After": retry_after(wait)}
    return _noted(asked, Answer(202, encoded(body), headers))


def final(intent: UUID, stored: Answer, completed: datetime, expires: datetime, *, repeated: bool) -> Answer:
    """The stored answer, byte for byte."""
    headers = {name: value for name, value in stored.headers.items() if name.lower() not in OURS}
    if repeated:
        headers["Idempotent-Replayed"] = "true"
    headers["Idempotency-Key-Completed"] = http_date(completed)
    headers["Idempotency-Key-Expires"] = http_date(expires)
    headers["Content-Location"] = location(intent)
    return Answer(stored.status, stored.body, headers)


def _wait(status: str, wait: float) -> float:
    return PERSONS_TIME if status == "approval" else wait


def unserved(intent: UUID) -> ProblemError:
    """The problem for a key at rest whose call no worker would make now."""
    return ProblemError(
        "not_executed", "Its call was not executed; this is proven. No worker makes it now, because its operation is "
                        "not configured as it was. Once it is, the same request with the same key runs it. What GET "
                        f"/v1/intents/{intent} shows as done stays done.", intent=intent,
        retry_after=OPERATORS_TIME,
    )  # fmt: skip


def location(intent: UUID) -> str:
    """Where an intent can be looked at."""
    return f"/v1/intents/{intent}"


def http_date(moment: datetime) -> str:
    """IMF-fixdate (RFC 9110, 5.6.7)."""
    # A driver gives it in the zone of its session, which may be any.
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def _noted(asked: AnswerContext, shown: Answer) -> Answer:
    return Answer(shown.status, shown.body, {**shown.headers, **_preference(asked)})


def _preference(asked: AnswerContext) -> dict[str, str]:
    return {} if asked.waited is None else {"Preference-Applied": f"wait={asked.waited}"}


def _problem(
    asked: AnswerContext,
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
