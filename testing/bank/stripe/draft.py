"""The effects of one request: built completely, then written as one line of the log and as its answer."""

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from idem.testing.bank.faults import NO_FAULT, BankFault
from idem.testing.bank.records import Changed
from idem.testing.bank.settings import BankAccount, BankSettings
from idem.testing.bank.stripe.objects import StripeObjects
from idem.testing.bank.stripe.refusals import StripeError

# What Stripe's own test cards do if no fault says otherwise: the status, and the status that follows.
_CARDS = {
    "pm_card_chargeDeclined": ("declined", None),
    "pm_card_visa_chargeDeclined": ("declined", None),
    "tok_chargeDeclined": ("declined", None),
    "pm_card_authenticationRequired": ("requires_action", None),
    "pm_card_threeDSecure2Required": ("requires_action", None),
    "pm_usBankAccount_success": ("processing", "succeeded"),
}


@dataclass(frozen=True)
class Course:
    """The course of an effect: its status in the bank's words, the status that follows, and after how many seconds.

    `timed`: whether a fault sets the seconds.
    """

    status: str = "succeeded"
    becomes: str | None = None
    seconds: float = 0.0
    timed: bool = False

    @classmethod
    def of(cls, fault: BankFault | None, settings: BankSettings) -> "Course":
        """The course that this fault causes."""
        plan = NO_FAULT if fault is None else fault.plan
        if fault is None or plan.becomes is None or fault.time is None:
            return cls(plan.status, plan.becomes, settings.pending_seconds)
        return cls(plan.status, plan.becomes, fault.time, timed=True)

    def with_card(self, card: object) -> "Course":
        """The same course with one of Stripe's test cards."""
        if self.status != "succeeded" or card not in _CARDS:
            return self
        status, becomes = _CARDS[str(card)]
        return replace(self, status=status, becomes=becomes)


@dataclass
class Draft:
    """The changes that a request makes. `at`: when they happen; `automatic`: the events name no request.

    `made`: the object that the request is about; `ordered`: the course that it takes, once it takes one.
    """

    register: StripeObjects
    account: BankAccount
    request: int
    key: str | None
    at: float
    course: Course
    automatic: bool = False
    made: str | None = None
    ordered: Course | None = None
    changes: list[Changed] = field(default_factory=list)

    def order(self, card: object = None) -> Course:
        """Take the planned course, with this card."""
        self.ordered = self.course.with_card(card)
        return self.ordered

    @property
    def is_new(self) -> bool:
        """Whether this request makes the object."""
        return any(each.object == self.made and "object" in each.patch for each in self.changes)

    def make(self, kind: str, prefix: str, members: Mapping[str, Any], type: str | None, **how: Any) -> str:
        """Add a new object; returns its id. `how`: the options of `change`. Without a `root` the request is about this
        object.
        """
        id = f"{prefix}_{uuid.uuid4().hex[:24]}"
        moment = self.at if how.get("after") is None else self.at + how["after"]
        own: dict[str, Any] = {
            "id": id,
            "object": kind,
            "livemode": False,
            "created": math.floor(moment),
            "metadata": {},
        }
        self.change(id, {**own, **members}, type, **how)
        if how.get("root") is None:
            self.made = id
        return id

    def change(
        self, id: str, patch: Mapping[str, Any], type: str | None, *, root: str | None = None,
        after: float | None = None, voids: bool = False,
    ) -> None:  # fmt: skip
        """Change an object, by itself `after` so many seconds, else now, with an event of this type.

        `root`: the object with which it is voided, by default `id`; `voids`: void the later changes with this root.
        """
        automatic = self.automatic or after is not None
        self.changes.append(
            Changed(
                f"evt_{uuid.uuid4().hex[:24]}",
                self.at + (after or 0.0),
                self.request,
                self.account.name,
                self.key if not automatic or (after is None and self.account.stripe.rolled_forward_key) else None,
                type,
                id,
                dict(patch),
                root or id,
                voids,
                automatic,
            )
        )

    def view(self, id: str) -> dict[str, Any]:
        """The object after these changes."""
        shown = self.view_or_none(id)
        assert shown is not None
        return shown

    def view_or_none(self, id: str) -> dict[str, Any] | None:
        """The object after these changes, if there is one."""
        return self.register.get(self.account.name, id, self.at, self.changes)

    def take(self, id: str, kind: str) -> dict[str, Any]:
        """The object that this request is about.

        Raises:
            StripeError: there is no such object.
        """
        found = self.find(id, kind)
        self.made = id
        return found

    def find(self, id: object, kind: str, param: str = "id") -> dict[str, Any]:
        """An existing object.

        Raises:
            StripeError: there is no such object.
        """
        shown = self.view_or_none(str(id))
        if shown is None or shown["object"] != kind:
            raise StripeError.missing(kind, str(id), param)
        return shown
