"""Params against a JSON Schema (Draft 2020-12). References to other documents are refused: nothing is fetched.

jsonschema is loaded by the first schema: an application whose params are pydantic's has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from idem.outbox import pointer, storable
from idem.outbox.errors import ParamsInvalid

if TYPE_CHECKING:
    from jsonschema import SchemaError, ValidationError

MAX_PROBLEMS: Final = 20


def check_schema(schema: Any) -> None:
    """Raises ValueError unless it is a usable JSON Schema, its own references resolved."""
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        raise ValueError(f"{pointer.render(error.absolute_path) or 'the top'}: {_told(error)}") from None
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver("")
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(f"the reference {reference!r} leaves the schema; put what it needs under $defs")
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise ValueError(f"the reference {reference!r} leads nowhere in the schema") from None


def validator(schema: Any) -> Callable[[Any], None]:
    """A function that raises ParamsInvalid, with JSON pointers, for params that the schema refuses."""
    from referencing import Registry

    from idem.outbox.configuration.schema_keywords import Validator

    compiled = Validator(schema, registry=Registry())

    def validate(params: Any) -> None:
        problems = sorted(
            (pointer.render(error.absolute_path), _told(error))
            for _, error in zip(range(MAX_PROBLEMS), compiled.iter_errors(params), strict=False)
        )
        if problems:
            raise ParamsInvalid(problems)

    return validate


def _told(error: ValidationError | SchemaError) -> str:
    return storable.text(error.message, 300)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, item in schema.items():
            if name in ("$ref", "$dynamicRef") and isinstance(item, str):
                yield item
            # What stands in these is data, not schema.
            elif name not in ("const", "enum", "default", "examples"):
                yield from _references(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)
