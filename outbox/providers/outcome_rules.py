"""Outcome rules: what a provider's answer says, as ordered data. The first rule that matches decides.

A rule is about the HTTP status, members of the body (by JSON pointer) and headers. It says where in the answer the
provider's reference, its own word for the state, and further named fields stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pydantic import Field

from idem.outbox.domain.outcomes import Pending, Proof, Refused, Succeeded
from idem.outbox.providers import response as document
from idem.outbox.providers.response import Document
from idem.outbox.values import json_pointer
from idem.outbox.values.json_pointer import MISSING, Tokens
from idem.outbox.values.settings_base import Pointer, Section


class Says(StrEnum):
    """What a rule concludes."""

    FINAL = "final"
    """The effect exists and is done: `Succeeded`."""
    ANSWER = "answer"
    """The object exists and is not at its end (3-D Secure's `requires_action`): `Succeeded`, and `interim`."""
    PENDING = "pending"
    REFUSED = "refused"
    NOT_EXECUTED_REQUEST = "not_executed:request"
    NOT_EXECUTED_CONFIG = "not_executed:config"
    NOT_EXECUTED_THROTTLED = "not_executed:throttled"
    AMBIGUOUS = "ambiguous"
    AMBIGUOUS_CACHED = "ambiguous:cached"
    """The provider has stored this failure under the key, so that a replay gets it again and again."""
    ABSENT = "absent"
    """Counts in look-ups only: the answer to a write cannot say it."""
    LATER_FACT = "later_fact"
    """Counts in events only: what became of an object that exists (refund, dispute, bounce), never a proof."""


PROOFS: Final = frozenset({Says.FINAL, Says.ANSWER, Says.PENDING, Says.REFUSED})

StatusSet: TypeAlias = frozenset[int]

Words: TypeAlias = list[bool | int | str]

INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")

STATUS_FORM: Final = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")

SUCCESS: Final[StatusSet] = frozenset(range(200, 300))


def statuses(value: object) -> StatusSet:
    """A set of HTTP statuses from `402`, `"2xx"`, `"400-422"` or a list of these. Raises ValueError."""
    if isinstance(value, list | tuple | frozenset | set):
        return frozenset().union(*(statuses(item) for item in value))
    match = STATUS_FORM.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if match is None:
        raise ValueError(f"{value!r} is not an HTTP status: write 402, '2xx', '400-422' or a list of these")
    if match[1]:
        return frozenset(range(int(match[1]) * 100, int(match[1]) * 100 + 100))
    first, last = int(match[2]), int(match[3] or match[2])
    if first > last:
        raise ValueError(f"{value!r} is an empty range of HTTP statuses")
    return frozenset(range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Condition:
    """A member of the body is one of `values`; without values: it exists (`exists`), or does not."""

    at: Tokens
    values: tuple[Any, ...] = ()
    exists: bool = True

    def holds(self, found: Any) -> bool:
        if not self.values:
            return (found is not MISSING) is self.exists
        return found is not MISSING and any(same(found, value) for value in self.values)


@dataclass(frozen=True, slots=True)
class HeaderCondition:
    """A header (named in lower case) has one of these values, compared without case; without values: see above."""

    name: str
    values: tuple[str, ...] = ()
    exists: bool = True

    def holds(self, found: str | None) -> bool:
        if not self.values:
            return (found is not None) is self.exists
        return found is not None and found.strip().lower() in {value.lower() for value in self.values}


class RulePlaces(Section):
    """Where the object's values are in an answer."""

    reference: Pointer | None = None
    """JSON pointer to the provider's reference, e.g. "/id"; default none. An answer without it is no proof."""
    status: Pointer | None = None
    """JSON pointer to the provider's own word for the state, e.g. "/status"; default none."""
    fields: dict[str, Pointer] = Field(default_factory=dict)
    """Further values for the answer, name to JSON pointer; default none."""

    def over(self, default: RulePlaces) -> RulePlaces:
        """These places, and where one is not said that of `default`."""
        return RulePlaces(
            reference=default.reference if self.reference is None else self.reference,
            status=default.status if self.status is None else self.status,
            fields={**default.fields, **self.fields},
        )

    def read_fields(self, body: Any) -> dict[str, Any]:
        """The named fields that are there, as JSON values."""
        found = ((name, json_pointer.resolve(body, tokens)) for name, tokens in self.fields.items())
        return {name: value for name, value in found if value is not MISSING}

    def read_reference(self, body: Any) -> str | None:
        return document.reference(json_pointer.resolve(body, self.reference))

    def read_status(self, body: Any) -> str | None:
        return document.word(json_pointer.resolve(body, self.status))


NO_PLACES: Final = RulePlaces()


@dataclass(frozen=True, slots=True)
class Rule:
    """One outcome rule. `types`: in events only, what their type must be, a star at the end for all that begin so."""

    says: Says
    status: StatusSet = SUCCESS
    body: tuple[Condition, ...] = ()
    headers: tuple[HeaderCondition, ...] = ()
    places: RulePlaces = NO_PLACES
    types: tuple[str, ...] = ()

    def matches(self, document: Document, lookup: bool = False) -> bool:
        """Whether the rule is about this answer.

        In a look-up any 2xx will do where the rule names a 2xx: the object that was created with 201 is shown with
        200.
        """
        status = document.status in self.status or (lookup and document.status in SUCCESS and self.status & SUCCESS)
        return bool(
            status
            and all(condition.holds(document.headers.get(condition.name)) for condition in self.headers)
            and all(condition.holds(document.find(condition.at)) for condition in self.body)
            # An absent member proves nothing about a body that nobody could read.
            and (document.readable or not self.body)
        )

    @property
    def recognises(self) -> bool:
        """Whether the rule demands something of the body or event, so that no proxy's page can match it."""
        return bool(self.types) or any(condition.values or condition.exists for condition in self.body)

    @property
    def demands_header(self) -> bool:
        """Whether the rule demands that a header is there."""
        return any(condition.values or condition.exists for condition in self.headers)


def said_once(kind: str, words: Mapping[Says, Sequence[bool | int | str]]) -> None:
    """Raises ValueError for a word that stands in two lists, or twice in one."""
    seen: dict[str, Says] = {}
    for says, listed in words.items():
        for word in listed:
            text = str(document.word(word))
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
    return statuses(["2xx", "4xx"] if says is Says.REFUSED else "2xx")


def conditions(written: Mapping[str, Any]) -> tuple[Condition, ...]:
    """What a `when` demands of a body. Raises ValueError."""
    return tuple(Condition(json_pointer.parse(at), *wanted(each)) for at, each in written.items())


def wanted(value: Any) -> tuple[tuple[Any, ...], bool]:
    """The values of a condition, and whether the member must exist. Raises ValueError."""
    if isinstance(value, dict):
        if set(value) != {"exists"} or not isinstance(value["exists"], bool):
            raise ValueError("a condition is a value, a list of values, or {exists = true}")
        return (), value["exists"]
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values or not all(isinstance(item, str | int | float | bool) for item in values):
        raise ValueError("a condition is a value, a list of values, or {exists = true}")
    return values, True


def proof(rule: Rule, body: Any, reference: str | None = None) -> Proof | None:
    """The proof that a rule makes of an object; None: the object has no reference, and the rule says where one is.

    `rule` says `final`, `answer`, `pending` or `refused`. `reference` counts where the object has none.
    """
    places = rule.places
    reference = places.read_reference(body) or reference
    status, fields = places.read_status(body), places.read_fields(body)
    if rule.says is Says.REFUSED:
        return Refused(reference, status, fields)
    if places.reference is not None and reference is None:
        return None
    if rule.says is Says.PENDING:
        return Pending(reference, status, fields)
    return Succeeded(reference, status, fields, interim=rule.says is Says.ANSWER)


def about_objects(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules by which an object that was asked for is read: without absences and what only events tell."""
    return tuple(rule for rule in rules if rule.says not in (Says.ABSENT, Says.LATER_FACT))


def of_type(wanted: Iterable[str], kind: str | None) -> bool:
    """Whether the type of an event is among those that are wanted; none: every type is."""
    wanted = tuple(wanted)
    return not wanted or any(
        kind is not None and (kind.startswith(each[:-1]) if each.endswith("*") else kind == each) for each in wanted
    )


def first(rules: Iterable[Rule], document: Document, lookup: bool = False) -> Rule | None:
    """The rule that decides, or None."""
    return next((rule for rule in rules if rule.matches(document, lookup)), None)


def same(found: Any, wanted: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but true is not 1."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return bool(found == wanted)
