"""The states of a key, the statuses of an outbox row, and both tables of transitions, as data.

The diagrams in the docs are generated from here, a test holds the database's triggers against it, and no other
module spells a transition. A row that keeps its state or status makes no transition.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class KeyState(StrEnum):
    """The state that the client of a key gets. The intent carries the same state (never `expired`: it outlives its
    key)."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED_RETRYABLE = "failed_retryable"
    UNKNOWN = "unknown"
    EXPIRED = "expired"


class OutboxStatus(StrEnum):
    """The status of an outbox row: who has its work."""

    APPROVAL = "approval"
    """Waits until a person approves its call, or rejects it."""
    UNFROZEN = "unfrozen"
    """Accepted by SQL and not rendered yet, or to be rendered anew under a new provider key."""
    WAITING = "waiting"
    """An earlier row of its ordering key is open, or the key is held. It may be rendered or not."""
    PENDING = "pending"
    """Due at `available_at`; nothing was sent, or every attempt is proven not executed."""
    CLAIMED = "claimed"
    """A worker or an inline caller holds it under a lease."""
    UNKNOWN = "unknown"
    """Bytes may have left."""
    AWAITING = "awaiting"
    """The provider has accepted, the end is to come."""
    HELD = "held"
    """Proven not executed, at rest (key `failed_retryable`)."""


GONE = None
"""The end of an outbox row: its step is done or cancelled, or its key is gone for good."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One listed change: `source` None is an INSERT, `target` None (`GONE`) is a DELETE.

    `reserved`: the database allows it, and no code of this version makes it.
    """

    source: str | None
    target: str | None
    by: tuple[str, ...]
    when: str
    reserved: bool = False


K = KeyState
S = OutboxStatus

QUEUED: Final = frozenset({S.PENDING, S.WAITING, S.UNFROZEN})
"""A worker makes the call without another decision."""

NOT_SENT_YET: Final = QUEUED | {S.APPROVAL, S.HELD}
"""Nothing was sent, or every attempt is proven not executed, and no claim is live."""

_DOUBTED: Final = ("recover", "sweeper"), "the database changed, and the deadline for the row has passed"

KEY_TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, K.IN_PROGRESS, ("accept",), "the key is new"),
    Transition(K.IN_PROGRESS, K.COMPLETED, ("accept",), "local operation, in the same transaction"),
    Transition(K.IN_PROGRESS, K.COMPLETED, ("worker", "inline"), "succeeded or refused, and no stored proof disagrees"),
    Transition(K.IN_PROGRESS, K.COMPLETED, ("settle",), "a final proof while no claim is live"),
    Transition(K.IN_PROGRESS, K.COMPLETED, ("cancel",), "never sent, or every attempt proven not executed"),
    Transition(K.IN_PROGRESS, K.COMPLETED, ("reject",), "it waits for an approval, and a person says no"),
    Transition(
        K.IN_PROGRESS,
        K.FAILED_RETRYABLE,
        ("worker", "inline", "sweeper", "api", "reconciler", "settle"),
        "proven not executed, and at rest",
    ),
    Transition(K.IN_PROGRESS, K.UNKNOWN, ("worker", "inline"), "ambiguous, or outcome and stored proof disagree"),
    Transition(K.IN_PROGRESS, K.UNKNOWN, ("sweeper", "api", "reconciler"), "claimed, and the lease has expired"),
    Transition(K.IN_PROGRESS, K.UNKNOWN, *_DOUBTED),
    Transition(K.FAILED_RETRYABLE, K.UNKNOWN, *_DOUBTED),
    Transition(K.UNKNOWN, K.COMPLETED, ("reconciler", "webhook", "late result", "operator"), "a final proof"),
    Transition(K.UNKNOWN, K.IN_PROGRESS, ("settle",), "accepted, and pending at the provider"),
    Transition(K.UNKNOWN, K.IN_PROGRESS, ("settle",), "step done, and another follows"),
    Transition(K.UNKNOWN, K.FAILED_RETRYABLE, ("reconciler", "operator"), "proven not executed"),
    Transition(K.FAILED_RETRYABLE, K.IN_PROGRESS, ("accept", "redrive"), "one atomic update, one winner"),
    Transition(K.FAILED_RETRYABLE, K.IN_PROGRESS, ("settle",), "late proof that the provider has accepted"),
    Transition(K.FAILED_RETRYABLE, K.IN_PROGRESS, ("settle", "operator"), "step done or undone, and another follows"),
    Transition(K.FAILED_RETRYABLE, K.COMPLETED, ("settle",), "a late proof"),
    Transition(K.FAILED_RETRYABLE, K.COMPLETED, ("cancel",), "every attempt proven not executed"),
    Transition(K.COMPLETED, K.EXPIRED, ("sweeper",), "expires_at has passed, no open dead letter"),
    Transition(K.FAILED_RETRYABLE, K.EXPIRED, ("sweeper",), "expires_at has passed, no open dead letter"),
    Transition(K.EXPIRED, GONE, ("sweeper",), "the tombstone has expired"),
)

OUTBOX_TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, S.PENDING, ("accept",), "frozen and free"),
    Transition(None, S.WAITING, ("accept",), "blocked by its ordering key"),
    Transition(None, S.UNFROZEN, ("accept",), "accepted by SQL"),
    Transition(None, S.UNFROZEN, ("worker", "settle", "cancel"), "an earlier step has ended, and this one follows"),
    Transition(None, S.CLAIMED, ("accept",), "inline"),
    Transition(None, S.APPROVAL, ("accept",), "the operation wants an approval of this call"),
    Transition(None, S.APPROVAL, ("settle",), "an earlier step was done without the approval, and this one wants it"),
    Transition(None, S.HELD, ("settle",), "an earlier step is proven done after its key had expired"),
    Transition(S.UNFROZEN, S.APPROVAL, ("worker",), "accepted by SQL, looked at, and wants an approval"),
    Transition(S.APPROVAL, S.PENDING, ("approve",), "frozen and free"),
    Transition(S.APPROVAL, S.WAITING, ("approve",), "blocked by its ordering key"),
    Transition(S.APPROVAL, S.UNFROZEN, ("approve",), "not rendered yet, or its key is burned"),
    Transition(S.APPROVAL, S.HELD, ("sweeper",), "too old: not decided in time"),
    Transition(S.APPROVAL, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.UNFROZEN, S.PENDING, ("worker",), "rendered"),
    Transition(S.UNFROZEN, S.HELD, ("worker", "sweeper"), "not renderable; too old"),
    Transition(S.WAITING, S.PENDING, ("settle", "sweeper", "operator"), "rendered, and not blocked any more"),
    Transition(S.WAITING, S.UNFROZEN, ("settle", "sweeper", "operator"), "to be rendered, and not blocked any more"),
    Transition(S.WAITING, S.HELD, ("sweeper",), "too old"),
    Transition(S.PENDING, S.CLAIMED, ("worker",), "due, young enough, no unapplied proof, lane open"),
    Transition(S.PENDING, S.HELD, ("sweeper",), "too old"),
    Transition(S.CLAIMED, S.PENDING, ("worker",), "not executed (transport, throttled, config), or given back"),
    Transition(S.CLAIMED, S.PENDING, ("sweeper", "api", "reconciler"), "start mark in use and absent: proven not sent"),
    Transition(S.CLAIMED, S.HELD, ("worker", "inline"), "not executed: inline, request, or too old"),
    Transition(S.CLAIMED, S.HELD, ("sweeper", "api", "reconciler"), "proven not sent, and it crashes its workers"),
    Transition(S.CLAIMED, S.UNKNOWN, ("worker", "inline"), "ambiguous"),
    Transition(S.CLAIMED, S.UNKNOWN, ("sweeper", "api", "reconciler"), "lease over"),
    Transition(S.CLAIMED, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.UNKNOWN, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.PENDING, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.WAITING, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.HELD, S.AWAITING, ("settle",), "pending at the provider"),
    Transition(S.UNKNOWN, S.HELD, ("settle",), "verdict: proven not executed"),
    Transition(S.HELD, S.APPROVAL, ("accept", "redrive"), "not approved yet"),
    Transition(S.HELD, S.PENDING, ("accept", "redrive"), "back to work under the same provider key"),
    Transition(S.HELD, S.UNFROZEN, ("accept", "redrive"), "never rendered, or its key is burned: back to be rendered"),
    Transition(S.HELD, S.WAITING, ("accept", "redrive"), "back to work, and blocked by its ordering key"),
    Transition(S.HELD, S.CLAIMED, ("accept",), "inline: the client's retry makes the call itself"),
    *(Transition(s, S.UNKNOWN, *_DOUBTED) for s in (S.APPROVAL, S.PENDING, S.WAITING, S.UNFROZEN, S.HELD)),
    *(Transition(s, GONE, ("settle", "cancel"), "step done or cancelled") for s in S),
    Transition(S.UNFROZEN, GONE, ("worker",), "its step is skipped"),
    Transition(S.APPROVAL, GONE, ("reject",), "a person says no"),
    Transition(S.HELD, GONE, ("sweeper",), "the key and the tombstone have expired"),
)


def pairs(transitions: tuple[Transition, ...]) -> frozenset[tuple[str | None, str | None]]:
    """The (from, to) pairs of a table of transitions."""
    return frozenset((t.source, t.target) for t in transitions)


class Reason(StrEnum):
    """Why an intent or an event is in the dead-letter table (docs/design.md, Dead letters)."""

    TOO_LATE = "too_late"
    UNRENDERABLE = "unrenderable"
    REJECTED = "rejected"
    CRASHES_WORKER = "crashes_worker"
    RECONCILE_EXHAUSTED = "reconcile_exhausted"
    NOT_SETTLEABLE = "not_settleable"
    PARTIAL = "partial"
    """Of a flow: something is done, and what follows was refused or cannot be made."""
    PENDING_TOO_LONG = "pending_too_long"
    UNREADABLE_ROW = "unreadable_row"
    """Reserved: no code opens it yet."""
    CONFLICT = "conflict"
    POSSIBLE_DUPLICATE = "possible_duplicate"
    DISCREPANCY = "discrepancy"
    UNMATCHED_WEBHOOK = "unmatched_webhook"
    HANDLER_FAILED = "handler_failed"
    ANSWER_FAILED = "answer_failed"
    EVENT_FAILED = "event_failed"


BLOCKS_RETRY = frozenset(
    {
        Reason.REJECTED,
        Reason.CRASHES_WORKER,
        Reason.RECONCILE_EXHAUSTED,
        Reason.NOT_SETTLEABLE,
        Reason.PARTIAL,
    }
)
"""While one of these is open, the client's retry is answered `needs_operator` (SQL: `idem.blocks_retry`)."""

CLOSED_BY_PROOF = frozenset(Reason) - {
    Reason.CONFLICT,
    Reason.POSSIBLE_DUPLICATE,
    Reason.PARTIAL,
    Reason.DISCREPANCY,
    Reason.UNMATCHED_WEBHOOK,
    Reason.HANDLER_FAILED,
    Reason.ANSWER_FAILED,
    Reason.EVENT_FAILED,
}
"""What a settling proof answers. It never closes a conflict: the second proof is the one that opened it."""
