"""The cases: JSON files beside this module, one per group, in the format of schema.json."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import jsonschema

HERE: Final = resources.files("idem.testing.conformance")


class CaseError(ValueError):
    """A file of cases that does not match schema.json."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `given` are the steps before it, `asks` the requests in order, each with its expected answer.

    `row` is the row of the contract that it proves, `profile` the configuration that the server must have.
    """

    group: str
    name: str
    row: str
    about: str | None
    profile: str
    operation: str
    given: tuple[str, ...]
    opening: Mapping[str, Any]
    asks: tuple[Mapping[str, Any], ...]
    expect: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name, unique among all cases."""
        return f"{self.group}/{self.name}"

    def steps(self) -> Iterable[str]:
        """Every step that the case needs."""
        yield from self.given
        for ask in self.asks:
            yield from ask.get("given", ())
            yield from ask.get("meanwhile", ())


@cache
def rows() -> Mapping[str, str]:
    """The rows of the contract: the short name that cases use, and the request in the words of the design's table."""
    return dict(json.loads(HERE.joinpath("rows.json").read_text("utf-8")))


@cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema of a file of cases."""
    return dict(json.loads(HERE.joinpath("schema.json").read_text("utf-8")))


def files() -> list[Traversable]:
    """The files of cases in this package."""
    found = HERE.joinpath("cases").iterdir()
    return sorted((file for file in found if file.name.endswith(".json")), key=lambda file: file.name)


def load(more: Iterable[Path] = ()) -> list[Case]:
    """All cases of this package and of `more` files. Raises CaseError, which names the place."""
    found = [case for file in (*files(), *more) for case in read(file)]
    seen: set[str] = set()
    for case in found:
        if case.id in seen:
            raise CaseError(f"{case.id} exists twice")
        seen.add(case.id)
    return found


def read(file: Traversable | Path) -> list[Case]:
    """The cases of one file. Raises CaseError, which names the place."""
    try:
        given = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise CaseError(f"{file.name}: not JSON: {error}") from None
    wrong = next(jsonschema.Draft202012Validator(schema()).iter_errors(given), None)
    if wrong is not None:
        raise CaseError(f"{file.name} at {wrong.json_path}: {wrong.message}")
    return [_case(given, each) for each in given["cases"]]


def _case(group: Mapping[str, Any], said: Mapping[str, Any]) -> Case:
    asks = said["requests"] if "requests" in said else [{"request": said["request"]} | _expected(said)]
    return Case(
        group=group["group"],
        name=said["name"],
        row=said["row"],
        about=said.get("about"),
        profile=said.get("profile", group.get("profile", "default")),
        operation=said.get("operation", "pay"),
        given=tuple(said.get("given", ())),
        opening=said.get("opening", {}),
        asks=tuple(asks),
        expect=said["expect"] if "requests" in said and "expect" in said else {},
    )


def _expected(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"expect": said["expect"]}
