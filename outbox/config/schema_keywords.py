"""Keywords of JSON Schema that are idem's own, because jsonschema's cost more than the params are long.

`uniqueItems` compares every pair of a list that cannot be sorted. `unevaluatedItems` and `unevaluatedProperties` look
for each item in a list. `anyOf` and `oneOf` write out every error of every alternative. Patterns run in Python's re.
And an error that is not told costs ten times what the keyword does that finds it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError

from idem.outbox.config.schema_evaluation import Evaluator, Items, Keyword, Members, width
from idem.outbox.config.schema_patterns import pattern

STOCK: Final = Draft202012Validator.VALIDATORS

LISTED: Final = 20
SHOWN: Final = 5
"""Names or items that a message quotes."""


def _type(evaluator: Evaluator, wanted: str | list[str], instance: Any, schema: Any) -> Iterable[ValidationError]:
    for each in [wanted] if isinstance(wanted, str) else wanted:
        if evaluator.is_type(instance, each):
            return ()
    types = [wanted] if isinstance(wanted, str) else wanted
    return evaluator.refuse(lambda: f"{instance!r} is not of type {', '.join(map(repr, types))}")


def _required(evaluator: Evaluator, names: list[str], instance: Any, schema: Any) -> Iterator[ValidationError]:
    for name in names if isinstance(instance, Members) else ():
        if name not in instance:
            yield from evaluator.refuse(lambda: f"{name!r} is a required property")  # noqa: B023 (called at once)


def _const(evaluator: Evaluator, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    if isinstance(wanted, list | dict):
        return STOCK["const"](evaluator, wanted, instance, schema) or ()
    if wanted == instance and (type(wanted) is bool) == (type(instance) is bool):
        return ()
    return evaluator.refuse(lambda: f"{wanted!r} was expected")


def _pattern(evaluator: Evaluator, text: str, instance: Any, schema: Any) -> Iterable[ValidationError]:
    if not isinstance(instance, str) or _found(evaluator, text, instance):
        return ()
    return evaluator.refuse(lambda: f"{instance[:100]!r} does not match {text!r}")


def _pattern_properties(
    evaluator: Evaluator, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    for text, part in patterns.items():
        for name, value in instance.items() if isinstance(instance, Members) else ():
            if _found(evaluator, text, name):
                yield from evaluator.descend(value, part, path=name)


def _additional_properties(evaluator: Evaluator, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Members):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    more = [
        name for name in instance if name not in known and not any(_found(evaluator, text, name) for text in patterns)
    ]
    if wanted is False and more:
        yield ValidationError(f"Additional properties are not allowed ({_some(more)} unexpected)")
    for name in more if wanted is not False else ():
        yield from evaluator.descend(instance[name], wanted, path=name)


def _found(evaluator: Evaluator, text: str, value: str) -> bool:
    wanted = pattern(text)
    evaluator.steps.take_at_once(wanted.cost(value))
    return wanted.found_in(value)


def _unique_items(evaluator: Evaluator, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, Items) and len({evaluator.number(item) for item in instance}) < len(instance):
        yield ValidationError("the list has an item twice")


def _enum(evaluator: Evaluator, wanted: list[Any], instance: Any, schema: Any) -> Iterable[ValidationError]:
    if not isinstance(instance, Items | Members):
        listed = evaluator.plan.lists(wanted, instance)
    else:
        same = STOCK["const"]
        listed = any(
            not [*(same(evaluator, each, instance, schema) or ())] for each in wanted if isinstance(each, list | dict)
        )
    return () if listed else evaluator.refuse(lambda: f"{instance!r} is not one of [{_some(wanted, LISTED)}]")


def _reference(evaluator: Evaluator, reference: str, instance: Any, schema: Any) -> Iterable[ValidationError]:
    return evaluator.descend(instance, evaluator.plan.referred[reference])


def _any_of(evaluator: Evaluator, parts: list[Any], instance: Any, schema: Any) -> Iterable[ValidationError]:
    for part in parts:
        if evaluator.holds(part, instance):
            return ()
    return evaluator.refuse(lambda: f"{instance!r} is not valid under any of the given schemas")


def _one_of(evaluator: Evaluator, parts: list[Any], instance: Any, schema: Any) -> Iterable[ValidationError]:
    fitting = 0
    for part in parts:
        fitting += evaluator.holds(part, instance)
        if fitting > 1:
            return evaluator.refuse(lambda: f"{instance!r} is valid under more than one of the given schemas")
    return () if fitting else evaluator.refuse(lambda: f"{instance!r} is not valid under any of the given schemas")


def _not(evaluator: Evaluator, part: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    return evaluator.refuse(lambda: f"{instance!r} is what `not` excludes") if evaluator.holds(part, instance) else ()


def _unevaluated_items(evaluator: Evaluator, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, Items):
        known = _evaluated(evaluator, instance, schema)
        left = [
            index for index, item in enumerate(instance) if index not in known and not evaluator.holds(wanted, item)
        ]
        if left:
            yield ValidationError(f"Unevaluated items are not allowed ({_some(left)} unexpected)")


def _unevaluated_properties(evaluator: Evaluator, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, Members):
        known = _evaluated(evaluator, instance, schema)
        left = [name for name, item in instance.items() if name not in known and not evaluator.holds(wanted, item)]
        if left:
            yield ValidationError(f"Unevaluated properties are not allowed ({_some(left)} unexpected)")


def _evaluated(evaluator: Evaluator, instance: Any, schema: Any) -> set[Any]:
    """The names or indexes that some part of the schema has looked at, unless it leaves them to this keyword."""
    # Each part makes a set of its own, and adds it to the others'.
    evaluator.steps.take(1 + width(instance))
    if isinstance(schema, bool):
        return set()
    found = set(
        _items(evaluator, instance, schema) if isinstance(instance, Items) else _names(evaluator, instance, schema)
    )
    for part in _in_place(evaluator, instance, schema):
        found |= _evaluated(evaluator, instance, part)
    return found


def _items(evaluator: Evaluator, instance: Items, schema: dict[str, Any]) -> Iterator[int]:
    yield from range(len(instance) if "items" in schema else len(schema.get("prefixItems", ())))
    for keyword in {"contains", "unevaluatedItems"} & schema.keys():
        yield from (index for index, item in enumerate(instance) if evaluator.holds(schema[keyword], item))


def _names(evaluator: Evaluator, instance: Members, schema: dict[str, Any]) -> Iterator[str]:
    yield from schema.get("properties", {}).keys() & instance.keys()
    for keyword in {"additionalProperties", "unevaluatedProperties"} & schema.keys():
        yield from (name for name, value in instance.items() if evaluator.holds(schema[keyword], value))
    for text in schema.get("patternProperties", ()):
        yield from (name for name in instance if _found(evaluator, text, name))


def _in_place(evaluator: Evaluator, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """The parts of a schema that speak of the same value and take it."""
    if "$ref" in schema:
        yield evaluator.plan.referred[schema["$ref"]]
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from (part for part in schema.get(keyword, ()) if evaluator.holds(part, instance))
    if "if" in schema:
        holds = evaluator.holds(schema["if"], instance)
        yield from (schema[name] for name in (("if", "then") if holds else ("else",)) if name in schema)
    yield from (part for name, part in schema.get("dependentSchemas", {}).items() if name in instance)


def _some(found: list[Any], most: int = SHOWN) -> str:
    shown = ", ".join(repr(each) for each in found[:most])
    return shown if len(found) <= most else f"{shown} and {len(found) - most} more"


KEYWORDS: Final[dict[str, Keyword]] = {
    **{name: keyword for name, keyword in STOCK.items() if name != "$dynamicRef"},
    "$ref": _reference,
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "const": _const,
    "enum": _enum,
    "not": _not,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "required": _required,
    "type": _type,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
"""Draft 2020-12."""
