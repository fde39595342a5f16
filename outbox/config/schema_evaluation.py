"""Params against a JSON Schema: each part of the schema is asked of each part of the params once.

The functions for the keywords are jsonschema's, or idem's (`schema_keywords`). Its validator would ask a part of a
schema again for each way that leads there, and `oneOf`, `anyOf` and `allOf` of a schema that refers to itself make two
ways of one with each level of the params.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator, ValidationError

from idem.outbox.config.schema_cost import Steps

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

ENTRIES: Final = 16
"""Entries of a keyword's value, or of the list or object that it is asked of, that cost a step more: a thousand
properties are looked at one after the other."""

REFUSED: Final = (ValidationError("refused"),)
"""What a keyword gets for a part that does not hold, where no message is wanted."""


class Plan:
    """A schema with the functions of its keywords. `referred`: what each of its references leads to."""

    def __init__(self, schema: Any, keywords: dict[str, Keyword], referred: dict[str, Any]) -> None:
        self.schema = schema
        self.referred = referred
        self._keywords = keywords
        self._parts: dict[int, list[tuple[Keyword, Any, int]]] = {}
        self._listed: dict[int, frozenset[tuple[bool, Any]]] = {}

    def part(self, schema: dict[str, Any]) -> list[tuple[Keyword, Any, int]]:
        """The keywords of a part, each with its value and the steps that it takes."""
        found = self._parts.get(id(schema))
        if found is None:
            found = self._parts[id(schema)] = [
                (self._keywords[name], value, 1 + (len(value) // ENTRIES if isinstance(value, list | dict) else 0))
                for name, value in schema.items()
                if name in self._keywords
            ]
        return found

    def lists(self, wanted: list[Any], value: Any) -> bool:
        """Whether an `enum` has this value, which is neither a list nor an object."""
        found = self._listed.get(id(wanted))
        if found is None:
            plain = (each for each in wanted if not isinstance(each, list | dict))
            found = self._listed[id(wanted)] = frozenset((type(each) is bool, each) for each in plain)
        return (type(value) is bool, value) in found


class Evaluator:
    """What keywords ask of a validator, for one set of params. Raises TooCostly and NotAtOnce of `steps`."""

    format_checker = None

    def __init__(self, plan: Plan, steps: Steps) -> None:
        self.plan = plan
        self.steps = steps
        self._known: dict[int, dict[int, bool]] = {}
        self._numbers: dict[Any, int] = {}
        self._numbered: dict[int, int] = {}

    def holds(self, schema: Any, instance: Any) -> bool:
        """Whether a part of the schema takes a part of the params."""
        if isinstance(schema, bool):
            return schema
        # What has no parts has no ways through it either.
        kept = self._known.setdefault(id(schema), {}) if instance and isinstance(instance, Items | Members) else {}
        known = kept.get(id(instance))
        if known is not None:
            return known
        answer, wide = True, width(instance)
        for keyword, value, cost in self.plan.part(schema):
            self.steps.take(cost + wide)
            for _ in keyword(self, value, instance, schema) or ():
                answer = False
                break
            if not answer:
                break
        kept[id(instance)] = answer
        return answer

    def descend(
        self, instance: Any, schema: Any, path: str | int | None = None, schema_path: str | int | None = None
    ) -> Iterable[ValidationError]:
        """No error where the part holds."""
        return () if self.holds(schema, instance) else REFUSED

    def refuse(self, why: Callable[[], str]) -> Iterable[ValidationError]:
        """An error of a keyword; its text is made only where a message is wanted."""
        return REFUSED

    def evolve(self, *, schema: Any) -> Part:
        """Another part of the schema."""
        return Part(self, schema)

    def is_type(self, instance: Any, type: str) -> bool:
        """Whether a value is of a type of JSON Schema."""
        return bool(Draft202012Validator.TYPE_CHECKER.is_type(instance, type))

    def number(self, value: Any) -> int:
        """A number that equal values share, as JSON Schema calls them equal: 1 and 1.0, members in any order."""
        container = isinstance(value, Items | Members)
        known = self._numbered.get(id(value)) if container else None
        if known is not None:
            return known
        self.steps.take()
        made: Any = type(value) is bool, value
        if isinstance(value, Items):
            made = "list", tuple([self.number(each) for each in value])
        elif isinstance(value, Members):
            made = "object", frozenset([(name, self.number(each)) for name, each in value.items()])
        found = self._numbers.setdefault(made, len(self._numbers))
        if container:
            self._numbered[id(value)] = found
        return found


class Part:
    """A part of a schema, as keywords ask about it."""

    __slots__ = ("_judge", "_schema")

    def __init__(self, evaluator: Evaluator, schema: Any) -> None:
        self._judge, self._schema = evaluator, schema

    def is_valid(self, instance: Any) -> bool:
        """Whether it takes this."""
        return self._judge.holds(self._schema, instance)


class ErrorCollector(Evaluator):
    """Walks through the parts that a evaluator has refused, and says why."""

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator.plan, evaluator.steps)
        self._judge = evaluator

    def holds(self, schema: Any, instance: Any) -> bool:
        return self._judge.holds(schema, instance)

    def descend(
        self, instance: Any, schema: Any, path: str | int | None = None, schema_path: str | int | None = None
    ) -> Iterable[ValidationError]:
        """The errors, each with the path from here."""
        return () if self.holds(schema, instance) else self._explained(instance, schema, path)

    def refuse(self, why: Callable[[], str]) -> Iterable[ValidationError]:
        return (ValidationError(why()),)

    def _explained(self, instance: Any, schema: Any, path: str | int | None) -> Iterator[ValidationError]:
        if schema is False:
            errors: Iterable[ValidationError] = (ValidationError("nothing may stand here"),)
        else:
            errors = (
                error
                for keyword, value, cost in self.plan.part(schema)
                for error in self._errors(keyword, value, cost, instance, schema)
            )
        for error in errors:
            if path is not None:
                error.path.appendleft(path)
            yield error

    def _errors(self, keyword: Keyword, value: Any, cost: int, instance: Any, schema: Any) -> Iterable[ValidationError]:
        self.steps.take(cost + width(instance))
        return keyword(self, value, instance, schema) or ()


class Items(list[Any]):
    """A list that is named in a message, and not written out: each part of a schema has a message of its own."""

    def __repr__(self) -> str:
        return f"a list of {len(self)}" if self else "[]"


class Members(dict[str, Any]):
    """The same for an object."""

    def __repr__(self) -> str:
        return f"an object of {len(self)}" if self else "{}"


def width(instance: Any) -> int:
    """The steps that it costs to look once at every item or name of a value."""
    return len(instance) // ENTRIES if isinstance(instance, Items | Members) else 0


def named(value: Any) -> tuple[Any, int]:
    """Params with lists and objects that are named in messages, and how many values they have."""
    if isinstance(value, list | tuple):
        items, counts = Items(), 1
        for each in value:
            made, count = named(each)
            items.append(made)
            counts += count
        return items, counts
    if isinstance(value, dict):
        members, counts = Members(), 1
        for name, each in value.items():
            members[name], count = named(each)
            counts += count + 1
        return members, counts
    return value, 1
