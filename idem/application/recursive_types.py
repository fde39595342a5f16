"""Types of params that pydantic would check twice for each level of what a client sends.

A union without a discriminator tries each of its types. Where two of them take the same value and have the union again
in the same place, a body of 40 levels is checked a million million times, in one step beside which no thread runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAMED: Final = frozenset({"$defs", "properties", "patternProperties"})
"""Keywords whose members are names with a schema each."""
DATA: Final = frozenset({"const", "default", "discriminator", "enum", "examples", "required"})
"""Keywords that hold no schema."""

Schema = Mapping[str, Any]


def forks(schema: Schema) -> list[str] | None:
    """The types of a union that are tried one inside the other, by name; None: there is no such union."""
    known: Mapping[str, Any] = schema.get("$defs", {})
    for union in _reached(schema, known):
        types = [_followed(each, known) for each in union.get("anyOf", ())]
        ways = [(_name(each), list(_ways(each, union, known))) for each in types]
        for number, (name, first) in enumerate(ways):
            for other, second in ways[number + 1 :]:
                if any(a == b or (a and b and "*" in (a, b)) for a in first for b in second):
                    return [name, other]
    return None


def _ways(part: Schema, union: Schema, known: Mapping[str, Any]) -> Iterator[str]:
    """The members by which a type leads back to a union; "*": all members, "": the items of a list."""
    for name, value in part.get("properties", {}).items():
        if _leads(value, union, known):
            yield name
    for keyword in ("additionalProperties", "patternProperties"):
        if _leads(part.get(keyword), union, known, named=keyword == "patternProperties"):
            yield "*"
    if _leads({name: part[name] for name in ("items", "prefixItems") if name in part}, union, known):
        yield ""


def _leads(part: Any, union: Schema, known: Mapping[str, Any], *, named: bool = False) -> bool:
    starts = list(part.values()) if named and isinstance(part, Mapping) else [part]
    return any(each is union for start in starts for each in _reached(start, known))


def _reached(start: Any, known: Mapping[str, Any]) -> Iterator[Schema]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.extend(_inside(part, known))


def _inside(part: Schema, known: Mapping[str, Any]) -> Iterator[Any]:
    if "$ref" in part:
        yield known.get(str(part["$ref"]).removeprefix("#/$defs/"))
    for name, value in part.items():
        if name in NAMED and isinstance(value, Mapping):
            yield from value.values()
        elif name not in DATA:
            yield from value if isinstance(value, list) else (value,)


def _followed(part: Schema, known: Mapping[str, Any]) -> Schema:
    seen: set[int] = set()
    while "$ref" in part and id(part) not in seen:
        seen.add(id(part))
        part = known.get(str(part["$ref"]).removeprefix("#/$defs/"), {})
    return part


def _name(part: Schema) -> str:
    return str(part.get("title") or part.get("type") or "a type without a name")
