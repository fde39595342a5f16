"""Params that an operation takes, made from its JSON Schema: the example that the API's description shows."""

from collections.abc import Mapping
from typing import Any

from idem.outbox.domain.operation import OperationSpec
from idem.outbox.values.errors import IdemError


def example(operation: OperationSpec) -> Any:
    """Params that this operation takes, or None where none could be made from its schema."""
    found = _instance(operation.schema)
    try:
        operation.validate(found)
    except IdemError:
        return None
    return found


def _instance(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return None
    for name in ("const", "default", "example"):
        if name in schema:
            return schema[name]
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    match schema.get("type"):
        case "object":
            wanted = schema.get("required", ())
            return {name: _instance(each) for name, each in schema.get("properties", {}).items() if name in wanted}
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "string":
            return "x" * max(1, int(schema.get("minLength", 1))) if "pattern" not in schema else ""
        case "boolean":
            return True
        case "array":
            return []
        case _:
            return None
