"""Keywords of JSON Schema whose cost grows with the square of what a client sends, done in one pass instead.

`uniqueItems` of jsonschema compares every pair of a list that cannot be sorted, and `unevaluatedItems` and
`unevaluatedProperties` look for each item in a list of those that were evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema._utils import find_evaluated_item_indexes_by_schema, find_evaluated_property_keys_by_schema
from jsonschema.validators import extend

from idem.outbox.canonical import canonical

SHOWN = 5
"""Names or items that a message quotes."""


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not wanted or not validator.is_type(instance, "array"):
        return
    # Canonical JSON is the same for values that JSON Schema calls equal: 1 and 1.0, members in any order.
    if len({canonical(item) for item in instance}) < len(instance):
        yield ValidationError("the list has an item twice")


def _unevaluated_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "array"):
        return
    evaluated = frozenset(find_evaluated_item_indexes_by_schema(validator, instance, schema))
    if left := [index for index in range(len(instance)) if index not in evaluated]:
        yield ValidationError(f"Unevaluated items are not allowed ({_some(left)} unexpected)")


def _unevaluated_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    evaluated = frozenset(find_evaluated_property_keys_by_schema(validator, instance, schema))
    left = [name for name in instance if name not in evaluated]
    refused = [name for name in left if next(validator.descend(instance[name], wanted), None) is not None]
    if refused:
        yield ValidationError(f"Unevaluated properties are not allowed ({_some(refused)} unexpected)")


def _some(found: list[Any]) -> str:
    shown = ", ".join(repr(each) for each in found[:SHOWN])
    return shown if len(found) <= SHOWN else f"{shown} and {len(found) - SHOWN} more"


_extend: Any = extend
Validator: Any = _extend(
    Draft202012Validator,
    {
        "uniqueItems": _unique_items,
        "unevaluatedItems": _unevaluated_items,
        "unevaluatedProperties": _unevaluated_properties,
    },
)
"""Draft 2020-12 with these keywords."""
