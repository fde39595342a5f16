"""Whether a call needs a person's approval before it is sent, and what its client gets where that person says no.

The operation says it of the params. What it cannot say (its code raises, or gives something else than a bool) releases
nothing: the request is refused before anything is written, or its row is at rest.
"""

import dataclasses
import json
from typing import Any, Final, Literal, TypeAlias

from idem.outbox.domain.operation import Answer, OperationSpec
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.problem_catalogue import MEDIA_TYPE, PROBLEMS
from idem.outbox.values.errors import ConfigError, Unrenderable

Ruling: TypeAlias = Literal["none", "wanted", "wanted_of_another"]
"""none: it may be sent. wanted: a person must approve it; of_another: another one than who asked for it."""
UNDECIDED: Final = "undecided"
"""What it says of a call that was accepted by SQL, until a worker renders it."""
NAME_LIMIT: Final = 200
"""Characters of the name of who asked."""

_PROBLEM = PROBLEMS["rejected_by_operator"]

REJECTED: Final = Answer(
    _PROBLEM.status,
    json.dumps(
        {name: getattr(_PROBLEM, name) for name in ("type", "title", "status", "code")}
        | {"detail": "A person decided against this request before anything was sent. Nothing happened."}
    ).encode(),
    {"content-type": MEDIA_TYPE},
)
"""The answer to every request with the key of a rejected intent, where the operation has none of its own."""


def ruling(operation: OperationSpec, params: Any) -> Ruling:
    """What the operation says of these params. Raises Unrenderable where it cannot say it: nothing is released."""
    if operation.approve is None:
        return "none"
    try:
        wanted = operation.approve(params)
    except Exception as error:  # the operation's own code
        raise Unrenderable(
            f"the operation {operation.name} cannot say whether these params need an approval ({type(error).__name__} "
            "in its approve)"
        ) from error
    if not isinstance(wanted, bool):
        raise Unrenderable(
            f"the operation {operation.name} cannot say whether these params need an approval: its approve returned "
            f"{type(wanted).__name__}, not True or False"
        )
    if not wanted:
        return "none"
    return "wanted_of_another" if operation.two_persons else "wanted"


def ruled(row: OutboxRow, said: Ruling | None) -> OutboxRow:
    """The row after this; None: as before."""
    return row if said is None else dataclasses.replace(row, approval=None if said == "none" else said)


def details(row: OutboxRow) -> dict[str, str]:
    """What the evidence says of a row that begins to wait."""
    said = {"approval": row.approval, "asked_by": row.asked_by}
    return {name: value for name, value in said.items() if value is not None}


def same_person(one: str, other: str | None) -> bool:
    """Whether two names mean one person (SQL: `idem.same_person`): the host in an operator's name says nothing."""
    return other is not None and _person(one) == _person(other)


def _person(name: str) -> str:
    return name.split("@", 1)[0].strip().lower()


def check_asker(operation: OperationSpec, ruled: Ruling, asked_by: str | None) -> None:
    """Raises ConfigError where another person must approve, and nobody knows who asks."""
    if ruled == "wanted_of_another" and not (asked_by or "").strip():
        raise ConfigError(
            f"operations.{operation.name}: it wants the approval of another person than the one who asks "
            "(two_persons), so say who asks: asked_by="
        )
