"""A change of state as a value: what is written, under which guard, and with which evidence.

`idem.outbox.decide` makes changes, `idem.outbox.settle` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from idem.outbox.operation import Answer
from idem.outbox.outcomes import Proof, Seen
from idem.outbox.states import KeyState, OutboxStatus, Reason

Event: TypeAlias = Literal["completed", "rested", "corrected", "later_fact"]
Ended: TypeAlias = Literal["succeeded", "refused", "cancelled"]


@dataclass(frozen=True, slots=True)
class Row:
    """An outbox row as one statement of the database saw it. Times are seconds from that moment, negative if past."""

    id: UUID
    intent_id: UUID
    operation: str
    provider: str
    account: str
    status: OutboxStatus
    state: KeyState
    token: UUID | None
    attempt: int
    provider_key: str
    live: bool = False
    step: int = 1
    version: int = 1
    redrives: int = 0
    sweeps: int = 0
    looks: int = 0
    absents: int = 0
    misses: int = 0
    start_left: float = 0.0
    quiet_left: float | None = None
    claim_age: float | None = None
    status_age: float = 0.0
    marks_start: bool = False
    started: bool = False
    window_left: float | None = None
    holder: str | None = None
    holder_known: bool = False
    reference: str | None = None
    redrives_itself: bool = False
    scheduled_left: float | None = None
    """Until the schedule's next look, while one that somebody ordered comes before it."""
    key_used_anew: bool = False
    contradicted: bool = False
    """Proofs that disagree are on record (an open `conflict`), or a hint that is to be fetched: each says that the
    provider has it."""
    frozen: bool = True
    """Its request has been rendered; one that never was (accepted by SQL) goes back to be rendered."""
    inline: bool = False
    """The caller's own code makes the call: never queued, never sent by us, taken up again by its client alone."""
    key_burned: bool = False
    """Nothing may be sent under its provider key any more: the next send is made under a new one."""
    cancel_sent: bool = False
    """A cancel by key may have left for it: only the answer to a cancel says what is there."""
    doubted_for: float | None = None
    """Seconds since the earliest moment at which commits that the database has forgotten may have sent it (Recovery);
    None: nothing is doubted."""
    replay_window: int = 0
    """Seconds for which the provider was sure to remember its key, by what was promised when it was accepted."""
    server_error: bool = False
    """An attempt ended with a 5xx answer of the provider, which may still carry it out (`late_effects`)."""


@dataclass(frozen=True, slots=True)
class StoredProof:
    """A proof that waits to be folded, as it was seen, with the answer or the interim answer of its finder."""

    id: UUID
    source: str
    proof: Proof
    answer: Answer | None
    http_status: int | None = None
    attempt: int | None = None
    interim: Any = None
    undone: bool = False
    """An attempt of ours saw it before a cancel of what it has made: it was true, and need not stand any more."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter to open."""

    reason: Reason
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Who saw what. `kind` is what happened: report, swept, look, replay, verdict, proof, redrive, cancel ..."""

    source: str
    kind: str
    outcome: str | None = None
    seen: Seen = field(default_factory=Seen)
    reference: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One transition of an outbox row with everything that is written in the same statement.

    Guard: `token` and `attempt` must still be the row's (the token is cleared when a claim ends, so it stands for
    the status); `alone` refuses a row that has stored proofs, which are then folded under its lock. `status` None:
    the row leaves. Durations in seconds from the statement; `quiet_from` says what `quiet_for` is added to. `interim`
    is JSON for the client of an `awaiting` row; None keeps the one before. `still_open`: the key is complete, the
    object is not at its end. `key_burned`, `server_error`: was seen with this change; None: as before.
    `keeps_schedule`: an ordered look is still to be made. `whole`: it speaks for every attempt, those too that the
    database has forgotten; without it no doubted row comes to rest. `doubt`: the doubt begins or ends with this change;
    None: as before.
    """

    row_id: UUID
    token: UUID | None
    attempt: int
    status: OutboxStatus | None
    state: KeyState
    evidence: Evidence
    alone: bool = False
    ended: Ended | None = None
    answer: Answer | None = None
    answer_ttl: float = 0.0
    interim: Any = None
    still_open: bool = False
    reference: str | None = None
    provider_status: str | None = None
    result: Mapping[str, Any] | None = None
    error_code: str | None = None
    error_message: str | None = None
    due_in: float | None = None
    redrive_in: float | None = None
    patience: float | None = None
    quiet_for: float | None = None
    quiet_from: Literal["now", "lease"] = "now"
    looks: int | None = None
    keeps_schedule: bool = False
    absents: int | None = None
    misses: int | None = None
    redrives: int | None = None
    sweeps: int | None = None
    key_burned: bool | None = None
    server_error: bool | None = None
    whole: bool = False
    doubt: Literal["begins", "ends"] | None = None
    letters: tuple[Letter, ...] = ()
    closes: frozenset[Reason] = frozenset()
    event: Event | None = None
    folds: tuple[UUID, ...] = ()
