"""A change of state as a value: what is written, under which guard, and with which evidence.

`idem.outbox.settle.decide` makes changes, `idem.outbox.settle.gate` writes them.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from idem.outbox.domain import redaction
from idem.outbox.domain.approval import Ruling
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import Source
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.plan import StepEnd
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.values import storable

EventType: TypeAlias = Literal["step", "completed", "rested", "partial", "corrected", "later_fact"]
EndedAs: TypeAlias = Literal["succeeded", "refused", "cancelled", "rejected"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter to open."""

    reason: Reason
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Who saw what. `kind` is what happened: report, swept, lookup, replay, verdict, proof, redrive, cancel ..."""

    source: Source
    kind: str
    outcome: str | None = None
    seen: Seen = field(default_factory=Seen)
    reference: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One transition of an outbox row with everything that is written in the same statement.

    `token` and `attempt` guard it: they must still be the row's. The end of a claim clears the token, so the token
    stands for the status. Durations are seconds from the statement.
    """

    row_id: UUID
    token: UUID | None  # None: the row has no claim
    attempt: int
    status: OutboxStatus | None  # after the change; None: the row leaves
    state: KeyState  # of the key and the intent, after the change
    evidence: Evidence
    alone: bool = False  # refuse it if the row has stored proofs beside `folds`; they are then folded under its lock
    ended: EndedAs | None = None  # how the intent ended
    answer: Answer | None = None  # the final answer; stored if the key completes
    step_end: StepEnd | None = None  # of a flow: what the step came to, where it has its end
    ends: tuple[StepEnd, ...] = ()  # of a flow that ends: what all its steps have come to
    next_step: int | None = None  # of a flow: the number of the step that begins; None: none
    next_patience: float = 0.0  # seconds until that one is too old to be sent
    completes_key: bool = False  # the key gets its answer, and the intent goes on
    answer_ttl: float = 0.0  # seconds that the key lives at least, if it completes or comes to rest
    interim: Any = None  # JSON for the client of an `awaiting` row; None keeps the one before
    still_open: bool = False  # the key is complete, and the provider's object is not at its end
    reference: str | None = None  # the provider's name of the object; None keeps the one before
    provider_status: str | None = None  # in the provider's words
    result: Mapping[str, Any] | None = None  # fields of the provider's object; None keeps those before
    error_code: str | None = None  # the key's last error; None: it has none any more
    error_message: str | None = None
    due_in: float | None = None  # seconds until it is sent or asked about; None keeps the time before
    redrive_in: float | None = None  # with `rests`: seconds until the automatic redrive; None: there is none
    patience: float | None = None  # seconds until it is too old to be sent; None keeps the time before
    quiet_for: float | None = None  # seconds in which its request may still act; only raises the time before
    quiet_from: Literal["now", "lease"] = "now"  # what `quiet_for` is added to; "lease": the end of the claim's lease
    lookups: int | None = None  # look-ups of the schedule that are used up; None of this and the next four keeps it
    absences: int | None = None  # agreeing absences
    failures: int | None = None  # failed sends or questions since the last one that worked
    redrives: int | None = None  # automatic redrives in the intent's life
    sweeps: int | None = None  # sweeps without a reported outcome between them
    keeps_schedule: bool = False  # the schedule's next look-up stays due, after the ordered one
    key_burned: bool | None = None  # nothing may be sent under its key any more; None: as before
    server_error: bool | None = None  # an attempt ended with a 5xx of the provider; None: as before
    whole: bool = False  # it speaks for every attempt, also for forgotten ones; else no doubted row comes to rest
    rests: bool = False  # it brings the row to rest, and `redrive_in` counts; else a row at rest keeps its redrive
    doubt: Literal["begins", "ends"] | None = None  # commits may be lost that sent it; None: as before
    word: Literal["begins", "ends"] | None = None  # only an operator says that what was sent did not happen; None: same
    ruling: Ruling | None = None  # whether a call that was undecided needs an approval; None: as before
    letters: tuple[DeadLetter, ...] = ()  # to open
    closes: frozenset[Reason] = frozenset()  # open dead letters with these reasons are closed
    event: EventType | None = None  # to emit
    folds: tuple[UUID, ...] = ()  # ids of the stored proofs that this change has used; they are deleted


_MADE_ANEW: Final = frozenset(
    ("row_id", "token", "status", "state", "evidence", "answer", "interim", "reference", "provider_status", "result")
) | {"letters", "closes", "folds", "step_end", "ends", "completes_key"}
_AS_IT_IS: Final = tuple(field.name for field in fields(Change) if field.name not in _MADE_ANEW)


def parameters(change: Change) -> dict[str, Any]:
    """A change as the record that WRITE reads. Everything from outside is made storable here."""
    seen = change.evidence.seen
    answer = change.answer
    return {
        # What a change does not say is not there: the statement reads that as NULL.
        **{name: value for name in _AS_IT_IS if (value := getattr(change, name)) is not None},
        "id": str(change.row_id),
        "token": str(change.token) if change.token else None,
        "to_status": change.status,
        "to_state": change.state,
        "key_state": KeyState.COMPLETED if change.completes_key else change.state,
        "step_end": _end(change.step_end, change.ends),
        "answer_status": answer.status if answer else None,
        "answer_headers": dict(answer.headers) if answer else None,
        "answer_body": base64.b64encode(answer.body).decode() if answer else None,
        "interim": storable.fields({"interim": change.interim})["interim"],
        "reference": storable.text(change.reference, 500) if change.reference is not None else None,
        "provider_status": storable.text(change.provider_status, 100) if change.provider_status is not None else None,
        "result": storable.fields(change.result) if change.result is not None else None,
        "source": change.evidence.source,
        "kind": change.evidence.kind,
        "seen": change.evidence.outcome,
        "http_status": seen.http_status,
        "details": evidence_details(seen, change.evidence.details),
        "message": None if seen.message is None else storable.text(seen.message, redaction.KEPT),
        "body": None if seen.body is None else storable.text(seen.body, redaction.KEPT),
        "letters": _dead_letters(change.letters),
        "closes": sorted(change.closes - {x.reason for x in change.letters}),
        "folds": [str(proof) for proof in change.folds],
    }


def evidence_details(seen: Seen, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What was seen as the `details` of evidence, storable."""
    said: dict[str, Any] = {
        name: storable.text(text)
        for name, text in (("error", seen.error), ("note", seen.note), ("code", seen.code))
        if text is not None
    }
    if seen.started:
        said["started"] = True
    if seen.elapsed is not None:
        said["elapsed"] = seen.elapsed
    if more:
        said |= storable.fields({key: value for key, value in more.items() if value is not None})
    return said


def _end(end: StepEnd | None, ends: tuple[StepEnd, ...]) -> dict[str, Any] | None:
    if end is None:
        return None
    told = {"step": end.name, "step_outcome": end.outcome, "fields": storable.fields(end.fields)}
    steps = [{"step": each.name, "outcome": each.outcome, "provider_reference": each.reference} for each in ends]
    flow = {"steps": storable.fields({"steps": steps})["steps"]} if steps else {}
    return {"outcome": end.outcome, "undoes": end.undoes, "told": told, "flow": flow}


def _dead_letters(letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    # One entry a reason: two in one statement would be refused by the unique index, and the row would never settle.
    details: dict[Reason, dict[str, Any]] = {}
    for letter in letters:
        if letter.reason in details:
            details[letter.reason].setdefault("also", []).append(letter.details)
        else:
            details[letter.reason] = dict(letter.details)
    return [{"reason": reason, "details": storable.fields(said)} for reason, said in details.items()]


def bare(row: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a row that cannot be stored with its details: outcome and status only, and a note of it."""
    return {
        **row,
        "result": None,
        "step_end": None if row["step_end"] is None else {**row["step_end"], "told": {}, "flow": {}},
        "interim": None,
        "message": None,
        "body": None,
        "details": {"dropped": "the details could not be stored"},
        "letters": [{"reason": letter["reason"], "details": {}} for letter in row["letters"]],
    }
