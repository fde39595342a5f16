"""Compares one object of the provider's list with this ledger. Pure: no I/O, no clock.

An object is ours by a stored key or reference, by our deployment tag, or because only this deployment uses the account.
Every other object is foreign and is only counted (hazard 40).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from idem.outbox.domain.completion import is_open
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Refused, name
from idem.outbox.domain.provider import Item, Question
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outbox.settle.endings import another
from idem.outbox.values import storable

ComparedAs: TypeAlias = Literal["matched", "settled_now", "ours_only", "theirs_only", "foreign", "open"]
"""What an object or an intent is counted as.

matched: both sides say the same. settled_now: it was not settled here, and its own object says how it ended. ours_only:
completed here, and the provider has nothing. theirs_only: the provider has it, and it is not in this ledger, or not so.
foreign: somebody else's. open: still in work here, so that nothing can be said yet.
"""

SCALARS: Final = (str, int, float)


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """A call of this ledger. `row_id` is its outbox row, which may have left; `status` is None when it has.

    `live`: a claim of it is being made now. `object_end`: what is known of an object that was not at its end when the
    key was completed. `keys`: every provider key of it, the newest first. `step`: its name, of a flow: then all of this
    is about that step, which is completed when it has its end. `partial`: it was refused, and an operator must decide
    what follows.
    """

    intent_id: UUID
    row_id: UUID | None
    operation: str
    state: KeyState
    outcome: str | None = None
    reference: str | None = None
    object_end: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    status: OutboxStatus | None = None
    live: bool = False
    settled_at: datetime | None = None
    method: str = ""
    path: str = ""
    keys: tuple[str, ...] = ()
    sent_at: float | None = None
    asked_at: float = math.inf
    headers: Mapping[str, str] = field(default_factory=dict)
    step: str | None = None
    partial: bool = False

    @property
    def identity(self) -> UUID:
        """By which it is known: its intent, or of a flow the row of the step."""
        return self.row_id if self.step is not None and self.row_id is not None else self.intent_id

    @property
    def question(self) -> Question:
        """What the provider is asked about this call with."""
        newest, *earlier = self.keys or ("",)
        return Question(
            newest,
            self.reference,
            False,
            self.sent_at,
            self.method,
            self.path,
            tuple(earlier),
            self.asked_at,
            headers=self.headers,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of which both sides say something else: `outcome`, `reference` or a named field of the contract."""

    what: str
    here: Any
    there: Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What an object is counted as, and why: `differs` where both sides have it, `ours_by` where only theirs has."""

    kind: ComparedAs
    differs: tuple[Difference, ...] = ()
    ours_by: str = ""


OPEN: Final = Reading("open")
MATCHED: Final = Reading("matched")
SETTLED_NOW: Final = Reading("settled_now")


def read(
    item: Item, ours: LedgerCall | None, contract: Contract, *, void: bool = False, wanted: str | None = None
) -> Reading:
    """What an object is beside `ours`; None: nothing in this ledger has its key or reference.

    `void`: it stands under a provider key of which we know that nothing was executed, or have cancelled it ourselves: a
    refusal is then no news. `wanted`: the kind of object that the call is about, None where every kind counts.
    """
    if ours is None:
        if item.ours:
            return Reading("theirs_only", ours_by="it carries this deployment's tag")
        return (
            Reading("theirs_only", ours_by="only this deployment uses the account")
            if contract.dedicated_account
            else Reading("foreign")
        )
    if wanted is not None and item.kind != wanted:
        # Another object of the same call, as a charge is of its payment: it is known here, and says nothing of its own.
        return MATCHED
    if ours.partial and isinstance(item.said, Refused):
        return MATCHED
    if void and isinstance(item.said, Refused):
        return MATCHED if ours.state is KeyState.COMPLETED or _at_rest(ours) else OPEN
    if ours.status is None and _at_rest(ours):
        return _did_not_happen(item, replace(ours, outcome="not_executed"))
    if ours.state is not KeyState.COMPLETED:
        return _unsettled(item, ours)
    match ours.outcome:
        case "succeeded":
            return _succeeded(item, ours)
        case "refused" | "cancelled" | "rejected":
            return _did_not_happen(item, ours)
        case _:
            return MATCHED


def same_object(ours: LedgerCall, item: Item, wanted: str | None) -> bool:
    """Whether this is the object that an intent is known by, and no other one beside it."""
    return not another(ours.reference, item.reference) and (wanted is None or item.kind == wanted)


def _at_rest(ours: LedgerCall) -> bool:
    # Also when its row has left, because its key has expired.
    return ours.status in (OutboxStatus.HELD, None) and ours.state is KeyState.FAILED_RETRYABLE


def _unsettled(item: Item, ours: LedgerCall) -> Reading:
    if item.said is None and _at_rest(ours):
        # We say that nothing happened, and there is something, whatever its state.
        return Reading("theirs_only", (Difference("outcome", "not_executed", _there(item)),))
    if item.said is None or ours.live or ours.row_id is None:
        return OPEN
    if ours.status is OutboxStatus.AWAITING and is_open(item.said):
        return OPEN
    return SETTLED_NOW


def _succeeded(item: Item, ours: LedgerCall) -> Reading:
    there = item.said
    refused = isinstance(there, Refused)
    if another(ours.reference, item.reference):
        # A second object that came to nothing has moved nothing: another card of the same customer, say.
        second = Difference("reference", ours.reference, item.reference)
        return MATCHED if refused else Reading("theirs_only", (second,))
    if there is None or is_open(there):
        return MATCHED
    if ours.object_end in ("open", "refused"):
        # The key was complete when the object existed: its end is a later fact, told once.
        return MATCHED if name(there) == ours.object_end else SETTLED_NOW
    if refused:
        return Reading("theirs_only", (Difference("outcome", "succeeded", _there(item)),))
    differs = () if ours.object_end is not None else _fields(ours.result, there.fields)
    return Reading("theirs_only", differs) if differs else MATCHED


def _did_not_happen(item: Item, ours: LedgerCall) -> Reading:
    same = not another(ours.reference, item.reference)
    if isinstance(item.said, Refused) or (item.said is None and ours.outcome == "refused" and same):
        return MATCHED
    differs = [Difference("outcome", ours.outcome, _there(item))]
    if not same:
        differs.append(Difference("reference", ours.reference, item.reference))
    return Reading("theirs_only", tuple(differs))


def _there(item: Item) -> str | None:
    return item.status if item.said is None else name(item.said)


def _fields(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[Difference, ...]:
    # As the database gives back what it was given: a number that no double holds is a text there.
    shown = json.loads(json.dumps(storable.fields(there)))
    return tuple(
        Difference(each, here[each], shown[each])
        for each in sorted(here.keys() & shown.keys())
        if isinstance(here[each], SCALARS) and isinstance(shown[each], SCALARS) and not _same(here[each], shown[each])
    )


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, bool) or isinstance(there, bool):
        return here is there
    return bool(here == there)
