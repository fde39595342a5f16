"""An outbox row as a value. A claim, a lock, a look-up and a result have it as their `row`."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from idem.outbox.domain import plan as plans
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outcomes import Proof
from idem.outbox.domain.plan import FlowPlan, StepEnd
from idem.outbox.domain.states import KeyState, OutboxStatus

Source: TypeAlias = Literal[
    "accept", "worker", "inline", "sweeper", "reconciler", "api", "policy", "webhook", "operator", "client", "recovery",
    "import",
]  # fmt: skip
"""Who changes states and brings proofs: the `source` of evidence."""
UNAPPROVED: Final = frozenset({"wanted", "wanted_of_another"})
"""What `outbox.approval` says of a call that somebody must approve first."""
OWN_SOURCES: Final = frozenset({"worker", "inline", "reconciler"})
"""Whose proofs are about an attempt of ours; a provider's event names none."""


@dataclass(frozen=True)
class OutboxRow:
    """An outbox row as one statement of the database saw it. Times are seconds from that moment, negative if past.

    A field that the statement does not read has its default: only a row under its lock (`LockedRow`) has them all.
    """

    id: UUID
    intent_id: UUID
    operation: str
    provider: str
    account: str
    status: OutboxStatus
    state: KeyState  # of the intent
    token: UUID | None  # of its claim
    attempt: int  # of the newest attempt; 0: none yet
    provider_key: str
    live: bool = False  # it is `claimed`, and the lease has not expired
    step: int = 1
    step_name: str | None = None  # of a flow; None: the operation has one call
    plan: FlowPlan | None = None  # of a flow: all its steps
    ends: tuple[StepEnd, ...] = ()  # of a flow: the steps that have ended
    # Of a flow: the references of the refusals of the open step that opened a dead letter, and the newest attempt that
    # was refused so; 0: none.
    refusals: tuple[str, ...] = ()
    refused_attempt: int = 0
    refused_there: bool = False  # of a flow: the provider has refused the open step, and an operator is to decide
    version: int = 1  # of the intent
    redrives: int = 0  # automatic redrives in the intent's life
    sweeps: int = 0  # sweeps without a reported outcome between them
    lookups: int = 0  # look-ups of the schedule that are used up
    absences: int = 0  # agreeing absences
    failures: int = 0  # failed sends or questions since the last one that worked
    start_left: float = 0.0  # until it is too old to be sent
    quiet_left: float | None = None  # until nothing that was sent can act any more; None: not known
    claim_age: float | None = None  # since its claim; None: it has no claim
    status_age: float = 0.0  # since it has its status
    marks_start: bool = False  # its sender marks the start of a call: then `not started` proves that nothing was sent
    started: bool = False  # its sender has marked a start; False proves something only with `marks_start`
    # Seconds since the earliest moment at which something that still counts may have been sent under its key: a send of
    # its own, or one of lost commits. The provider's memory counts from there (`idem.outbox.settle.replay_window`).
    memory_age: float | None = None
    holder: str | None = None  # the daemon that has claimed it
    holder_known: bool = False  # that its holder ended, or lives without this claim, is on record; False: not known
    reference: str | None = None  # the provider's name of the object
    redrives_itself: bool = False  # it is at rest and has a time for its automatic redrive
    scheduled_left: float | None = None  # until the schedule's next look-up, while one that was ordered comes before it
    key_used_anew: bool = False  # the client's key belongs to another intent by now
    key_over: bool = False  # of a flow: its key has expired, so its client was told that nothing happened
    # Proofs that disagree are on record (an open `conflict`), or a hint that is to be fetched: each says that the
    # provider has it.
    contradicted: bool = False
    frozen: bool = True  # its request has been rendered; one that never was (accepted by SQL) goes back to be rendered
    # The caller's own code makes the call: never queued, never sent by us, taken up again by its client alone.
    inline: bool = False
    # Nothing may be sent under its provider key any more: the next send is made under a new one.
    key_burned: bool = False
    cancel_sent: bool = False  # a cancel by key may have left for it: only the answer to a cancel says what is there
    # Seconds since the earliest moment at which commits that the database has forgotten may have sent it (Recovery);
    # None: nothing is doubted.
    doubted_for: float | None = None
    # Seconds for which the provider was sure to remember its key, by what was promised when it was accepted.
    replay_window: int = 0
    # An attempt ended with a 5xx answer of the provider, which may still carry it out (`late_effects`).
    server_error: bool = False
    blocked: bool = False  # by its ordering key: were it brought back to work, it would wait
    approval: str | None = None  # as in the table; None: the call needs none
    asked_by: str | None = None  # who asked for a call that may need an approval, as far as that is known

    @property
    def queued_as(self) -> OutboxStatus:
        """The status with which it goes to work: the one place of Python that chooses it (SQL: `idem.next_status`)."""
        if self.approval in UNAPPROVED:
            return OutboxStatus.APPROVAL
        if self.blocked:
            return OutboxStatus.WAITING
        ready = self.frozen and not self.key_burned and self.approval in (None, "given")
        return OutboxStatus.PENDING if ready else OutboxStatus.UNFROZEN

    @property
    def call(self) -> str:
        """The name of the call that it makes: its operation's, with the step's where it is one of a flow."""
        return self.operation if self.step_name is None else f"{self.operation} {self.step_name}"

    @property
    def is_local_step(self) -> bool:
        """Whether it is a function of a flow that writes in this database alone: nothing of it is ever unknown."""
        return self.provider == LOCAL and not self.inline

    @property
    def undoes(self) -> int | None:
        """Of a compensation: the number of the step that it undoes."""
        return None if self.plan is None else self.plan.step(self.step).undoes

    @property
    def key_completed(self) -> bool:
        """Whether an earlier step has completed the key (`completes_when` of a flow)."""
        return self.plan is not None and any(e.succeeded and self.plan.step(e.number).completes for e in self.ends)

    @property
    def caller(self) -> Source:
        """Who makes its calls and reports them."""
        return "inline" if self.inline else "worker"


@dataclass(frozen=True, slots=True)
class StoredProof:
    """A proof that waits to be folded, as it was seen, with the answer or the interim answer of its finder."""

    id: UUID
    source: Source
    proof: Proof
    answer: Answer | None
    http_status: int | None = None
    attempt: int | None = None
    interim: Any = None
    # An attempt of ours saw it before a cancel of what it has made: it was true, and need not stand any more.
    undone: bool = False


_FIELDS: Final = {field.name for field in fields(OutboxRow)}
_DEFAULTS: Final = {field.name: None if field.default is MISSING else field.default for field in fields(OutboxRow)}
_OF_FLOW: Final = frozenset({"plan", "ends", "refusals"})


def outbox_row(record: Any, **known: Any) -> OutboxRow:
    """The row in a record of the database, by the names of its columns. `known`: fields that no column gives."""
    # Every call makes one. Its dictionary is made whole: an `__init__` of a frozen class sets each of its 45 fields by
    # a call, which takes five times as long.
    names, values = _columns(record._fields)
    said = {**_DEFAULTS, **dict(zip(names, values(record), strict=True)), **known}
    if said["step_name"] is not None:
        said["plan"], said["ends"] = plans.plan(record.plan), plans.ends(record.ends)
        said["refusals"] = tuple(getattr(record, "refusals", None) or ())
    said["status"], said["state"] = _STATUSES[said["status"]], _STATES[said["state"]]
    row = object.__new__(OutboxRow)
    object.__setattr__(row, "__dict__", said)
    return row


_STATUSES: Final = {str(status): status for status in OutboxStatus}
_STATES: Final = {str(state): state for state in KeyState}


@cache
def _columns(names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    # Once a statement, not once a row. What only a flow has is read for a flow alone.
    places = [place for place, name in enumerate(names) if name in _FIELDS - _OF_FLOW]
    return tuple(names[place] for place in places), itemgetter(*places)


def claimed_row(record: Any, *, token: UUID, **known: Any) -> OutboxRow:
    """The row in a record of a statement that has claimed it under this token, or found such a claim."""
    return outbox_row(record, token=token, status=OutboxStatus.CLAIMED, state=KeyState.IN_PROGRESS, live=True, **known)
