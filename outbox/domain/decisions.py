"""What accept decided about a request: a closed union, so that every `match` over it is total.

The design names seven decisions; `NeedsOperator` is the eighth (docs/decisions/0003).
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from idem.outbox.domain.operation import Answer


@dataclass(frozen=True, slots=True)
class Accepted:
    """The key is new: intent, key and outbox row commit or roll back with the caller's transaction. `status`: of the
    row; `waiting` where an earlier row of its ordering key is open."""

    intent_id: UUID
    expires_at: datetime
    status: str = field(default="pending", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Retrying:
    """The key was `failed_retryable` and goes back to work: `pending` with its frozen request; `approval` where nobody
    has approved it yet; `unfrozen`, to be rendered, because it never was or because its provider key is burned; or
    `waiting` behind others of its ordering key."""

    intent_id: UUID
    status: str = field(default="pending", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """The stored answer, byte for byte."""

    intent_id: UUID
    answer: Answer
    completed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another request with this key is in progress. `status` is the outbox status where it is known (`awaiting`: the
    provider is working).

    `intent_id` is None while the other accept has not committed. `retry_after` in seconds. `interim`: JSON for the
    client of what is `awaiting`.
    """

    intent_id: UUID | None
    status: str | None
    retry_after: float
    provider_reference: str | None = None
    interim: Any = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Bytes may have left and the outcome is not known yet; `retry_after`, in seconds, is the time to the next look-up.

    `lease_over`: the row is still claimed, by a lease that has passed, and is to be swept before anybody asks.
    """

    intent_id: UUID
    retry_after: float
    lease_over: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NeedsOperator:
    """An open dead letter that a retry cannot answer."""

    intent_id: UUID
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for other content. `fingerprint`: what it was accepted with."""

    intent_id: UUID
    fingerprint: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expired:
    """The key's answer is gone, and its tombstone remains."""

    intent_id: UUID


Decision: TypeAlias = Accepted | Retrying | Replay | InProgress | Unknown | NeedsOperator | Mismatch | Expired


@dataclass(frozen=True, slots=True)
class Limited:
    """The key is new, and its tenant may not make one now: nothing was written. Only where the caller set a limit."""
