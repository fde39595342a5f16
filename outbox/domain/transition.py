"""A change of state as a value: what is written, under which guard, and with which evidence.

`idem.outbox.settle.decide` makes changes, `idem.outbox.settle.gate` writes them.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from idem.outbox.domain import redaction
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outbox_row import Source
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.values import storable

EventType: TypeAlias = Literal["completed", "rested", "corrected", "later_fact"]
EndedAs: TypeAlias = Literal["succeeded", "refused", "cancelled"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter to open."""

    reason: Reason
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Who saw what. `kind` is what happened: report, swept, look, replay, verdict, proof, redrive, cancel ..."""

    source: Source
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
    database has forgotten; without it no doubted row comes to rest. `rests`: it comes to rest with this change, with an
    automatic redrive after `redrive_in` or without one; a change that leaves a row at rest leaves that too. `doubt`:
    the doubt begins or ends with this change; None: as before. `word`: from here on only an operator's word says that
    what was sent did not happen, or a proof takes its place.
    """

    row_id: UUID
    token: UUID | None
    attempt: int
    status: OutboxStatus | None
    state: KeyState
    evidence: Evidence
    alone: bool = False
    ended: EndedAs | None = None
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
    lookups: int | None = None
    keeps_schedule: bool = False
    absences: int | None = None
    failures: int | None = None
    redrives: int | None = None
    sweeps: int | None = None
    key_burned: bool | None = None
    server_error: bool | None = None
    whole: bool = False
    rests: bool = False
    doubt: Literal["begins", "ends"] | None = None
    word: Literal["begins", "ends"] | None = None
    letters: tuple[DeadLetter, ...] = ()
    closes: frozenset[Reason] = frozenset()
    event: EventType | None = None
    folds: tuple[UUID, ...] = ()


_MADE_ANEW: Final = frozenset(
    ("row_id", "token", "status", "state", "evidence", "answer", "interim", "reference", "provider_status", "result")
) | {"letters", "closes", "folds"}
_AS_IT_IS: Final = tuple(field.name for field in fields(Change) if field.name not in _MADE_ANEW)


def parameters(change: Change) -> dict[str, Any]:
    """A change as the record that WRITE reads. Everything from outside is made storable here."""
    seen = change.evidence.seen
    details = {
        key: value
        for key, value in {
            "error": seen.error,
            "note": seen.note,
            "code": seen.code,
            "started": seen.started or None,
            "elapsed": seen.elapsed,
            **change.evidence.details,
        }.items()
        if value is not None
    }
    answer = change.answer
    return {
        **{name: getattr(change, name) for name in _AS_IT_IS},
        "id": str(change.row_id),
        "token": str(change.token) if change.token else None,
        "to_status": change.status,
        "to_state": change.state,
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
        "details": storable.fields(details),
        "message": None if seen.message is None else storable.text(seen.message, redaction.KEPT),
        "body": None if seen.body is None else storable.text(seen.body, redaction.KEPT),
        "letters": _dead_letters(change.letters),
        "closes": sorted(change.closes - {x.reason for x in change.letters}),
        "folds": [str(proof) for proof in change.folds],
    }


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
        "interim": None,
        "message": None,
        "body": None,
        "details": {"dropped": "the details could not be stored"},
        "letters": [{"reason": letter["reason"], "details": {}} for letter in row["letters"]],
    }
