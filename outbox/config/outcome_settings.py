"""`outcome` and `object` of a provider in idem.toml: how its answers are read."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from idem.outbox.providers.outcome_rules import (
    PROOFS,
    Condition,
    HeaderCondition,
    Rule,
    RulePlaces,
    Says,
    Words,
    conditions,
    said_once,
    statuses,
    usual,
    wanted,
)
from idem.outbox.values import json_pointer
from idem.outbox.values.settings_base import Pointers, Section

STATUS_MEANINGS: Final = (Says.FINAL, Says.ANSWER, Says.PENDING, Says.REFUSED, Says.LATER_FACT)


class ObjectSettings(RulePlaces):
    """Where the object's values are in an answer, and what its status means."""

    path: Pointers = ()
    """JSON pointer to the object in the answer to a write, e.g. "/payment", or a list of pointers: the first that
    exists counts; default none: the answer is the object. Look-ups and events have their own `object`."""
    statuses: dict[Says, Words] = Field(default_factory=dict)
    """The provider's words for the state, by what they mean: final (the effect exists and is done), answer (the object
    exists and is not at its end, e.g. requires_action), pending (the provider is working on it), refused, later_fact
    (what becomes of an object afterwards, e.g. refunded; only events tell it). Rules on `status` that are read after
    those of `outcome`; default none."""

    @field_validator("statuses")
    @classmethod
    def _are_said_once(cls, value: dict[Says, Words]) -> dict[Says, Words]:
        for says in value:
            if says not in STATUS_MEANINGS:
                raise ValueError(f"{says} is not said of a status: {', '.join(STATUS_MEANINGS)} are")
        said_once("status", value)
        return value

    @model_validator(mode="after")
    def _has_a_status(self) -> ObjectSettings:
        if self.status is None and any(self.statuses.values()):
            raise ValueError('statuses are read at `status`: say where it is, as status = "/status"')
        return self

    def rules(self) -> tuple[Rule, ...]:
        """The statuses as rules."""
        return tuple(
            Rule(says, usual(says), (Condition(self.status, tuple(self.statuses[says])),), places=self)
            for says in STATUS_MEANINGS
            if self.status is not None and self.statuses.get(says)
        )


class RuleSettings(Section):
    """One outcome rule; the first that matches an answer decides."""

    says: Says
    """What the answer means: "final", "answer", "pending", "refused", "not_executed:request", "not_executed:config",
    "not_executed:throttled", "ambiguous", "ambiguous:cached" (the provider has stored this failure under the key: the
    replays end), "absent" (look-ups only) or "later_fact" (events only)."""
    status: int | str | list[int | str] | None = None
    """HTTP statuses: 402, "2xx", "400-422" or a list; default "2xx", for refused "2xx" and "4xx". The others must say
    it; a later_fact has none."""
    when: dict[str, Any] = Field(default_factory=dict)
    """What members of the body must be: JSON pointer to a value, a list of values, or {exists = true}; default
    nothing."""
    headers: dict[str, Any] = Field(default_factory=dict)
    """The same for headers, by name; values are compared without case."""
    types: list[str] = Field(default_factory=list)
    """Of a later_fact: the types of events that tell it, a star at the end for all that begin so, as
    "charge.dispute.*"; default all."""
    object: RulePlaces = RulePlaces()
    """Where the object's values are, if not where the provider's `object` says."""

    @field_validator("status", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None and not statuses(value):
            raise ValueError("an empty list is not a status, and the rule would never hold: name one, or leave it out")
        return value

    @field_validator("when", "headers")
    @classmethod
    def _are_conditions(cls, value: dict[str, Any]) -> dict[str, Any]:
        for each in value.values():
            wanted(each)
        return value

    @model_validator(mode="after")
    def _is_said(self) -> RuleSettings:
        for at in self.when:
            json_pointer.parse(at)
        if self.says is Says.LATER_FACT:
            if self.status is not None or self.headers or not (self.when or self.types):
                raise ValueError("events tell a later_fact, and have a body alone: demand something with `when`")
        elif self.types:
            raise ValueError("types are those of events, which alone tell a later_fact")
        elif self.status is None and self.says not in PROOFS:
            raise ValueError(f"a rule that says {self.says} must name its HTTP status")
        return self

    def build(self, default: RulePlaces) -> Rule:
        return Rule(
            says=self.says,
            status=usual(self.says) if self.status is None else statuses(self.status),
            body=conditions(self.when),
            headers=tuple(
                HeaderCondition(name.lower(), tuple(str(value) for value in values), exists)
                for name, (values, exists) in ((name, wanted(each)) for name, each in self.headers.items())
            ),
            places=self.object.over(default),
            types=tuple(self.types),
        )
