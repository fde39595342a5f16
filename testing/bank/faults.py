"""The faults: a table of what each does, and the choice of a request's fault.

A fault is named in the header `X-Bank-Fault`, in the body member `bank_fault`, in a script, or chosen by rate.
`name:seconds` sets the duration of a fault (how long it stalls, drips, stays pending, asks to wait).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Self

from idem.testing.bank.errors import SettingsError


class Acts(Enum):
    """Whether and when the bank executes the request."""

    NEVER = "never"
    AT_ONCE = "at once"
    LATE = "after the stall"
    REMEMBERS = "not, but the key keeps the answer"
    ROLLS_FORWARD = "the key keeps the answer, and the effect comes by itself after the fault's seconds"


class AnswerFault(Enum):
    """How the answer is delivered."""

    WHOLE = "sent"
    DROPPED = "FIN, nothing sent"
    RESET = "RST, nothing sent"
    STALLED = "held back, forever or for the fault's seconds"
    DRIPPED = "head at once, body byte by byte, the fault's seconds apart"
    CUT = "head and half of the body, then FIN"


@dataclass(frozen=True)
class FaultPlan:
    """One row of the table of faults. `seconds` is the default duration of the fault; None: the bank's settings have
    it.
    """

    acts: Acts = Acts.AT_ONCE
    delivery: AnswerFault = AnswerFault.WHOLE
    answer: str | None = None
    status: str = "succeeded"
    becomes: str | None = None
    seconds: float | None = None


NO_FAULT = FaultPlan()


class FaultName(StrEnum):
    """All faults. Every name without `before` acts first, except those that answer instead of the bank (401, 409, 429,
    503) and the two that keep a 500 under the key.

    `500_cached`: nothing is done, and every replay gets that 500. `500_rolled_forward` (60): the same, but after its
    seconds the effect appears by itself, and only look-ups and events show it. `409_in_flight`: the bank answers that
    another request with this key is running. `429_lock_timeout`: like 429, with Stripe's code for it.
    """

    plan: FaultPlan

    def __new__(cls, name: str, plan: FaultPlan = NO_FAULT) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.plan = name, plan
        return member

    ACT_THEN_DROP = "act_then_drop", FaultPlan(delivery=AnswerFault.DROPPED)
    ACT_THEN_RESET = "act_then_reset", FaultPlan(delivery=AnswerFault.RESET)
    ACT_THEN_STALL = "act_then_stall", FaultPlan(delivery=AnswerFault.STALLED)
    ACT_THEN_500 = "act_then_500", FaultPlan(answer="500")
    DROP_BEFORE_ACTING = "drop_before_acting", FaultPlan(Acts.NEVER, AnswerFault.DROPPED)
    RESET_BEFORE_ACTING = "reset_before_acting", FaultPlan(Acts.NEVER, AnswerFault.RESET)
    STALL_BEFORE_ACTING = "stall_before_acting", FaultPlan(Acts.LATE)
    TOO_MANY_REQUESTS = "429", FaultPlan(Acts.NEVER, answer="429", seconds=1.0)
    UNAVAILABLE = "503", FaultPlan(Acts.NEVER, answer="503", seconds=1.0)
    ERROR_BEFORE_ACTING = "500_before_acting", FaultPlan(Acts.NEVER, answer="500")
    CACHED_ERROR = "500_cached", FaultPlan(Acts.REMEMBERS, answer="500")
    ROLLED_FORWARD = "500_rolled_forward", FaultPlan(Acts.ROLLS_FORWARD, answer="500", seconds=60.0)
    IN_FLIGHT = "409_in_flight", FaultPlan(Acts.NEVER, answer="409")
    LOCK_TIMEOUT = "429_lock_timeout", FaultPlan(Acts.NEVER, answer="lock_timeout")
    DRIP = "drip", FaultPlan(delivery=AnswerFault.DRIPPED, seconds=1.0)
    BROKEN_BODY = "broken_body", FaultPlan(answer="broken")
    CUT_BODY = "cut_body", FaultPlan(delivery=AnswerFault.CUT)
    DECLINE = "decline", FaultPlan(status="declined")
    PENDING = "pending", FaultPlan(status="processing", becomes="succeeded")
    PENDING_THEN_DECLINED = "pending_then_declined", FaultPlan(status="processing", becomes="declined")
    HTML_403 = "html_403", FaultPlan(Acts.NEVER, answer="html_403")
    UNAUTHORIZED = "401", FaultPlan(Acts.NEVER, answer="401")
    REFUSED_REQUEST = "422_before_acting", FaultPlan(Acts.NEVER, answer="422")
    REQUIRES_ACTION = "requires_action", FaultPlan(status="requires_action", becomes="succeeded")
    REQUIRES_ACTION_THEN_DECLINED = (
        "requires_action_then_declined",
        FaultPlan(status="requires_action", becomes="declined"),
    )


# The faults that a rate chooses from: common accidents. Not 401, which means a wrong configuration of ours, and not
# drip, which holds a call for minutes.
EVERYDAY_FAULTS: Mapping[str, float] = {
    "act_then_drop": 3.0,
    "act_then_reset": 2.0,
    "act_then_stall": 1.0,
    "act_then_500": 2.0,
    "broken_body": 1.0,
    "drop_before_acting": 2.0,
    "reset_before_acting": 1.0,
    "stall_before_acting": 1.0,
    "429": 1.0,
    "503": 1.0,
    "500_before_acting": 1.0,
    "decline": 1.0,
    "pending": 1.0,
}


@dataclass(frozen=True)
class BankFault:
    """A fault with its duration. `seconds` None: the default of the fault, or of the bank's settings."""

    name: FaultName
    seconds: float | None = None

    def __str__(self) -> str:
        return self.name if self.seconds is None else f"{self.name}:{self.seconds:g}"

    @property
    def plan(self) -> FaultPlan:
        return self.name.plan

    @property
    def time(self) -> float | None:
        """The fault's seconds, else its default, else None."""
        return self.plan.seconds if self.seconds is None else self.seconds

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `name` or `name:seconds`.

        Raises:
            SettingsError: there is no such fault, or the seconds are invalid.
        """
        name, _, time = text.strip().partition(":")
        try:
            known = FaultName(name)
        except ValueError:
            raise SettingsError(f"there is no fault {name!r}. Use one of: {', '.join(FaultName)}") from None
        if time and not re.fullmatch(r"\d+(\.\d+)?", time):
            raise SettingsError(f"fault {text!r}: {time!r} is not a number of seconds")
        return cls(known, float(time) if time else None)


def ordered_by_request(order: str | list[Any], nth: int) -> BankFault | None:
    """The fault that a request itself names, for the `nth` sending of its key.

    A replay has the same bytes, so the request may name a list: the first sending gets the first fault, the second the
    second, later ones none. `none` is no fault; a `*` after the last repeats it forever.

    Raises:
        SettingsError: the order is invalid.
    """
    names = order.split(",") if isinstance(order, str) else order
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise SettingsError("bank_fault must be a name or a list of names")
    names = [name.strip() for name in names]
    repeats = names[-1].endswith("*")
    faults = [None if name == "none" else BankFault.parse(name) for name in (n.rstrip("*") for n in names)]
    if nth <= len(faults):
        return faults[nth - 1]
    return faults[-1] if repeats else None


def chosen_by_rate(faults: Mapping[str, float], rate: float, seed: int, *identity: object) -> BankFault | None:
    """The fault that the rate chooses for the request `identity`: the same for the same seed, in whatever order and on
    however many connections the requests arrive."""
    if rate <= 0 or not faults:
        return None
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *identity))).encode()).digest()
    whether, which = (int.from_bytes(part, "big") / 2**64 for part in (digest[:8], digest[8:16]))
    if whether >= rate:
        return None
    return next(_weighted(faults, which), None)


def _weighted(faults: Mapping[str, float], point: float) -> Iterator[BankFault]:
    point *= sum(faults.values())
    for name, weight in faults.items():
        point -= weight
        if point < 0:
            yield BankFault.parse(name)
