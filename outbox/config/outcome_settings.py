"""`outcome` and `object` of a provider in idem.toml: how its answers are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from idem.outbox.config.section import Section
from idem.outbox.providers import outcome_rules as rules
from idem.outbox.providers import response
from idem.outbox.providers.outcome_rules import Condition, HeaderCondition, Places, Rule, Says, StatusSet
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import Tokens

INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


def _pointer(text: str) -> str:
    json_pointer.parse(text)
    return text


Pointer: TypeAlias = Annotated[str, AfterValidator(_pointer)]

Words: TypeAlias = list[bool | int | str]


def tokens(text: str | None) -> Tokens | None:
    """The tokens of a pointer that may be missing."""
    return None if text is None else json_pointer.parse(text)


def said_once(kind: str, words: Mapping[Says, Sequence[bool | int | str]]) -> None:
    """Raises ValueError for a word that stands in two lists, or twice in one."""
    seen: dict[str, Says] = {}
    for says, listed in words.items():
        for word in listed:
            text = str(response.word(word))
            if text in seen:
                where = f"twice under {says}" if seen[text] is says else f"under {seen[text]} and under {says}"
                raise ValueError(f"the {kind} {word!r} stands {where}: it can mean one thing only")
            seen[text] = says


def spellings(words: Iterable[bool | int | str]) -> tuple[bool | int | str, ...]:
    """The words, each that is made of digits as text and as number: what is 704 here is "704" there."""
    given = tuple(words)
    numbers = [int(word) for word in given if isinstance(word, str) and INTEGER.fullmatch(word)]
    texts = [str(word) for word in given if isinstance(word, int) and not isinstance(word, bool)]
    return (*given, *numbers, *texts)


def usual(says: Says) -> StatusSet:
    """The HTTP statuses of a rule that names none."""
    return rules.statuses(["2xx", "4xx"] if says is Says.REFUSED else "2xx")


class PlaceSettings(Section):
    """Where the object's values are in an answer."""

    reference: Pointer | None = Field(
        default=None,
        description='JSON pointer to the provider\'s reference, as "/id"; default none. An answer without it is '
        "no proof.",
    )
    status: Pointer | None = Field(
        default=None, description='JSON pointer to the provider\'s own word for the state, as "/status"; default none.'
    )
    fields: dict[str, Pointer] = Field(
        default_factory=dict, description="Further values for the answer, name to JSON pointer; default none."
    )

    def places(self) -> Places:
        return Places(
            reference=tokens(self.reference),
            status=tokens(self.status),
            fields={name: json_pointer.parse(at) for name, at in self.fields.items()},
        )


class StatusSettings(Section):
    """The provider's own words for the state of an object, sorted: rules on `object.status`, in short."""

    final: Words = Field(default_factory=list, description="The effect exists and is done; default none.")
    answer: Words = Field(
        default_factory=list, description="The object exists and is not at its end (requires_action); default none."
    )
    pending: Words = Field(default_factory=list, description="The provider is working on it; default none.")
    refused: Words = Field(default_factory=list, description="It decided against the effect; default none.")
    later_fact: Words = Field(
        default_factory=list,
        description="What becomes of an object afterwards (refunded, disputed): told by events; answers and looks "
        "conclude nothing from it; default none.",
    )

    @model_validator(mode="after")
    def _are_said_once(self) -> StatusSettings:
        said_once("status", self.sorted())
        return self

    def sorted(self) -> dict[Says, Words]:
        """The words by what they mean."""
        return {
            Says.FINAL: self.final,
            Says.ANSWER: self.answer,
            Says.PENDING: self.pending,
            Says.REFUSED: self.refused,
            Says.LATER_FACT: self.later_fact,
        }


class ObjectSettings(PlaceSettings):
    """Where the object's values are in an answer, and what its status means."""

    inside: list[Pointer] = Field(
        default_factory=list,
        description='JSON pointer to the object in the answer to a write, as "/payment", or a list of which the first '
        "that is there counts; default none: the answer is the object. Look-ups and events have their own `object`.",
    )
    statuses: StatusSettings = Field(
        default=StatusSettings(),
        description="The provider's words for the state, sorted: rules on `status` that are read after those of "
        "`outcome`; default none.",
    )

    @field_validator("inside", mode="before")
    @classmethod
    def _is_one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_a_status(self) -> ObjectSettings:
        if self.status is None and any(self.statuses.sorted().values()):
            raise ValueError('statuses are read at `status`: say where it is, as status = "/status"')
        return self

    def rules(self) -> tuple[Rule, ...]:
        """The statuses as rules."""
        at = tokens(self.status)
        return tuple(
            Rule(says, usual(says), (Condition(at, tuple(words)),), places=self.places())
            for says, words in self.statuses.sorted().items()
            if at is not None and words
        )


class RuleSettings(Section):
    """One outcome rule; the first that matches an answer decides."""

    says: Says = Field(
        description='What the answer means: "final", "answer", "pending", "refused", "not_executed:request", '
        '"not_executed:config", "not_executed:throttled", "ambiguous", "ambiguous:cached" (the provider has stored '
        'this failure under the key: the replays end), "absent" (look-ups only) or "later_fact" (events only).'
    )
    status: int | str | list[int | str] | None = Field(
        default=None,
        description='HTTP statuses: 402, "2xx", "400-422" or a list; default "2xx", for refused "2xx" and "4xx". The '
        "others must say it; a later_fact has none.",
    )
    when: dict[str, Any] = Field(
        default_factory=dict,
        description="What members of the body must be: JSON pointer to a value, a list of values, or {exists = true}.",
    )
    headers: dict[str, Any] = Field(
        default_factory=dict, description="The same for headers, by name; values are compared without case."
    )
    types: list[str] = Field(
        default_factory=list,
        description="Of a later_fact: the types of events that tell it, a star at the end for all that begin so, as "
        '"charge.dispute.*"; default all.',
    )
    object: PlaceSettings = Field(
        default=PlaceSettings(),
        description="Where the object's values are, if not where the provider's `object` says.",
    )

    @field_validator("status", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        if value is not None and not rules.statuses(value):
            raise ValueError("an empty list is no status, and the rule would never hold: name one, or leave it out")
        return value

    @field_validator("when", "headers")
    @classmethod
    def _are_conditions(cls, value: dict[str, Any]) -> dict[str, Any]:
        for wanted in value.values():
            _wanted(wanted)
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
        elif self.status is None and self.says not in rules.PROOFS:
            raise ValueError(f"a rule that says {self.says} must name its HTTP status")
        return self

    def build(self, default: PlaceSettings) -> Rule:
        own, places = self.object.places(), default.places()
        return Rule(
            says=self.says,
            status=usual(self.says) if self.status is None else rules.statuses(self.status),
            body=conditions(self.when),
            headers=tuple(
                HeaderCondition(name.lower(), tuple(str(value) for value in values), exists)
                for name, (values, exists) in ((name, _wanted(wanted)) for name, wanted in self.headers.items())
            ),
            places=Places(
                reference=places.reference if own.reference is None else own.reference,
                status=places.status if own.status is None else own.status,
                fields={**places.fields, **own.fields},
            ),
            types=tuple(self.types),
        )


def conditions(written: Mapping[str, Any]) -> tuple[Condition, ...]:
    """What a `when` demands of a body. Raises ValueError."""
    return tuple(Condition(json_pointer.parse(at), *_wanted(wanted)) for at, wanted in written.items())


def _wanted(value: Any) -> tuple[tuple[Any, ...], bool]:
    """The values of a condition, and whether the member must exist. Raises ValueError."""
    if isinstance(value, dict):
        if set(value) != {"exists"} or not isinstance(value["exists"], bool):
            raise ValueError("a condition is a value, a list of values, or {exists = true}")
        return (), value["exists"]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values or not all(isinstance(item, str | int | float | bool) for item in values):
        raise ValueError("a condition is a value, a list of values, or {exists = true}")
    return values, True
