"""Checks a JSON Schema of params at start-up, before any params are checked against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from idem.outbox.values import json_pointer, storable

if TYPE_CHECKING:
    from jsonschema import ValidationError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def check_schema(schema: Any) -> None:
    """Raises ValueError unless it is a usable JSON Schema: its references resolved, its patterns linear."""
    from idem.outbox.config.schema_patterns import pattern

    _check_form(schema)
    referred = references(schema)
    for part in parts(schema, referred):
        _check_document(part, top=part is schema)
        for text in (*([part["pattern"]] if "pattern" in part else ()), *part.get("patternProperties", ())):
            pattern(text)
    _check_ends(schema, referred)


def references(schema: Any) -> dict[str, Any]:
    """What each reference of a schema leads to. Raises ValueError where one leads elsewhere, or nowhere."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    # What has a name of its own is asked for by "#" alone here.
    top = {name: value for name, value in schema.items() if name != "$id"} if isinstance(schema, dict) else schema
    resolver = Registry().with_resource("", DRAFT202012.create_resource(top)).resolver("")
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        for part in parts(waiting.pop(), {}):
            reference = part.get("$ref")
            if reference is None or reference in found:
                continue
            if not reference.startswith("#"):
                raise ValueError(f"the reference {reference!r} leaves the schema; put what it needs under $defs")
            try:
                target = schema if reference == "#" else resolver.lookup(reference).contents
            except Unresolvable:
                raise ValueError(f"the reference {reference!r} leads nowhere in the schema") from None
            _check_form(target)
            found[reference] = target
            waiting.append(target)
    return found


def parts(schema: Any, referred: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and every schema inside it and behind its references, each once."""
    from referencing.jsonschema import DRAFT202012

    seen: set[int] = set()
    waiting = [schema, *referred.values()]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict) and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting.extend(DRAFT202012.subresources_of(each))


def _check_form(schema: Any) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    nothing: Any = None  # of formats: patterns are looked at by themselves
    try:
        Draft202012Validator.check_schema(schema, format_checker=nothing)
    except SchemaError as error:
        raise ValueError(f"{json_pointer.render(error.absolute_path) or 'the top'}: {message(error)}") from None


def _check_document(part: dict[str, Any], *, top: bool) -> None:
    if "$dynamicRef" in part:
        raise ValueError('"$dynamicRef" is not supported: say "$ref"')
    if "$id" in part and not top:
        raise ValueError(f'the "$id" {part["$id"]!r} stands inside the schema: leave it out, and refer by "#/$defs/…"')
    if part.get("$schema", DIALECT).removesuffix("#") != DIALECT:
        raise ValueError(f'the "$schema" {part["$schema"]!r} is not supported: params are Draft 2020-12, {DIALECT}')


def _check_ends(schema: Any, referred: dict[str, Any]) -> None:
    """Raises ValueError where a part refers to itself for the same value, so that a check would never end."""
    done: set[int] = set()
    open_: set[int] = set()
    waiting: list[tuple[dict[str, Any], bool]] = [(part, False) for part in parts(schema, referred)]
    while waiting:
        part, left = waiting.pop()
        if left:
            open_.discard(id(part))
            done.add(id(part))
        elif id(part) in open_:
            raise ValueError(
                f"a part of it refers to itself for the same value ({', '.join(sorted(part))[:100]}), so that checking "
                "it would not end: refer to it from a property or an item"
            )
        elif id(part) not in done:
            open_.add(id(part))
            waiting.append((part, True))
            waiting.extend((each, False) for each in _in_place(part, referred) if isinstance(each, dict))


def _in_place(part: dict[str, Any], referred: dict[str, Any]) -> Iterator[Any]:
    if "$ref" in part:
        yield referred[part["$ref"]]
    for name in ("allOf", "anyOf", "oneOf"):
        yield from part.get(name, ())
    yield from (part[name] for name in ("not", "if", "then", "else") if name in part)
    yield from part.get("dependentSchemas", {}).values()


def message(error: ValidationError | Any) -> str:
    """An error of jsonschema in a line."""
    return storable.text(error.message, 300)
