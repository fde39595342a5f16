"""No type of params is checked more than once for each level of what a client sends."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field, JsonValue, TypeAdapter

from idem import Idem
from idem.application import recursive_types
from idem.errors import ConfigError

CHECKED: list[None] = []


def counted(value: Any) -> Any:
    CHECKED.append(None)
    return value


class First(BaseModel):
    kind: Literal["first"] = "first"
    inner: Annotated[First | Second | None, BeforeValidator(counted)] = None


class Second(BaseModel):
    kind: Literal["second"] = "second"
    inner: Annotated[First | Second | None, BeforeValidator(counted)] = None


class Left(BaseModel):
    kind: Literal["left"] = "left"
    inner: Annotated[Annotated[Left | Right, Field(discriminator="kind")] | None, BeforeValidator(counted)] = None


class Right(BaseModel):
    kind: Literal["right"] = "right"
    inner: Annotated[Annotated[Left | Right, Field(discriminator="kind")] | None, BeforeValidator(counted)] = None


class Tree(BaseModel):
    left: Annotated[Tree | None, BeforeValidator(counted)] = None
    inner: Annotated[Tree | None, BeforeValidator(counted)] = None


class This(BaseModel):
    inner: Annotated[This | That | int, BeforeValidator(counted)]


class That(BaseModel):
    other: Annotated[This | That | int, BeforeValidator(counted)]


class Free(BaseModel):
    inner: Annotated[dict[str, Free] | Free | int | None, BeforeValidator(counted)] = None


class Batch(BaseModel):
    inner: Annotated[list[Batch] | Annotated[list[Batch], Field(min_length=3)] | None, BeforeValidator(counted)] = None


def nested(depth: int, **more: Any) -> str:
    found: dict[str, Any] = {"inner": 5}
    for _ in range(depth):
        found = {"inner": found, **more}
    return json.dumps(found)


def checks(model: Any, depth: int, **more: Any) -> int:
    CHECKED.clear()
    adapter = TypeAdapter(model)
    with suppress(ValueError):
        adapter.validate_json(nested(depth, **more))
    return len(CHECKED)


GOOD: dict[str, tuple[Any, dict[str, Any]]] = {
    "a discriminator": (Left, {"kind": "left"}),
    "one type": (Tree, {}),
    "other members": (This, {}),
    "any JSON": (dict[str, JsonValue], {}),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_taken_is_checked_once_for_each_level(name: str) -> None:
    model, more = GOOD[name]
    assert recursive_types.forks(TypeAdapter(model).json_schema()) is None
    small, middle, large = (checks(model, depth, **more) for depth in (10, 20, 40))
    assert large - middle <= 2 * (middle - small) + 2


BAD = {"a union": First, "in a list": list[First | Second], "a dict": Free, "lists": Batch}


@pytest.mark.parametrize("name", BAD)
def test_a_union_that_tries_itself_twice_is_refused_where_it_is_defined(name: str) -> None:
    with pytest.raises(ConfigError, match=r"discriminator"):
        Idem().operation("effect", BAD[name])


def test_such_a_union_does_cost_twice_as_much_with_each_level() -> None:
    assert checks(First, 10) > 2.5 * checks(First, 8) > 6 * checks(First, 6)
