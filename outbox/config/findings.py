"""What is wrong with a setting, said to the person who wrote it: where, what, and what to do."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from idem.outbox.config.source import SettingPath, line_of
from idem.outbox.providers.contract_checks import Finding, Level
from idem.outbox.values.settings_base import Section
from idem.outbox.values.suggestions import nearest

VARIANT: Final = re.compile(r"int|str|bool|list\[.*\]|\[key\]")


class Findings:
    """Gathers what is wrong; knows the lines of the file and which settings came from the environment."""

    def __init__(self, lines: Mapping[SettingPath, int], variables: Mapping[SettingPath, str]) -> None:
        self._lines = lines
        self._variables = variables
        self.found: list[Finding] = []

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.found if finding.level == "error"]

    def add(self, level: Level, loc: SettingPath, what: str, do: str) -> None:
        variable = self._variables.get(loc)
        where, line = (spelled(loc), line_of(loc, self._lines)) if variable is None else (variable, None)
        self.found.append(Finding(level, where, what, do, line))

    def error(self, loc: SettingPath, what: str, do: str) -> None:
        self.add("error", loc, what, do)

    def warn(self, loc: SettingPath, what: str, do: str) -> None:
        self.add("warning", loc, what, do)

    def invalid(self, model: type[Section], error: ValidationError, within: SettingPath = ()) -> None:
        """Every mistake that pydantic found in a table of this model, which stands at `within`."""
        for problem in error.errors(include_url=False, include_input=True):
            loc: SettingPath = tuple(problem["loc"])
            known, field = _fields(model, loc)
            what, do = _said(problem, loc, known, field)
            self.error((*within, *_without_variants(loc)), what, do)


def spelled(loc: SettingPath) -> str:
    """The path of a setting as idem.toml would spell it: names with dots in quotes."""
    return ".".join(f'"{part}"' if isinstance(part, str) and "." in part else str(part) for part in loc)


def _said(problem: Any, loc: SettingPath, known: list[str], field: FieldInfo | None) -> tuple[str, str]:
    about = "" if field is None or field.description is None else field.description
    match problem["type"]:
        case "extra_forbidden":
            do = nearest(str(loc[-1]), known)
            # [operations.payments.create] is a table inside a table for TOML.
            if isinstance(problem["input"], dict) and loc[:-1] == () and {"path", "steps"} & problem["input"].keys():
                do = f'A name with a dot is written in quotes, e.g. [operations."….{loc[-1]}"]'
            return "there is no such setting", do
        case "missing":
            return "it is missing", about
        case "value_error":
            return str(problem["ctx"]["error"]), about or "See the documentation of this table"
        case "model_type" | "dict_type":
            return "it must be a table", about or "Write its name in brackets and its settings below, or in braces"
        case "literal_error" | "enum":
            return f"it must be one of {problem['ctx']['expected']}", about
        case _:
            message = str(problem["msg"])
            return message[:1].lower() + message[1:], about


def _without_variants(loc: SettingPath) -> SettingPath:
    # For `int | str | list[…]` pydantic adds the name of the variant that it tried.
    return tuple(part for part in loc if not isinstance(part, str) or not VARIANT.fullmatch(part))


def _fields(model: type[Section], loc: SettingPath) -> tuple[list[str], FieldInfo | None]:
    """The settings that the table around `loc` knows, and the one that `loc` names."""
    annotation: Any = model
    field: FieldInfo | None = None
    for index, part in enumerate(loc):
        table = next(_models(annotation), None)
        if table is None:
            return [], field
        if isinstance(part, int) or get_origin(_plain(annotation)) is dict:
            annotation = _item(annotation)
            continue
        field = table.described().get(part)
        if field is None or index == len(loc) - 1:
            return list(table.model_fields), field
        annotation = field.annotation
    return [], field


def _plain(annotation: Any) -> Any:
    """The annotation without `| None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next((arg for arg in get_args(annotation) if arg is not type(None)), annotation)
    return annotation


def _item(annotation: Any) -> Any:
    return get_args(_plain(annotation))[-1] if get_args(_plain(annotation)) else annotation


def _models(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for arg in get_args(annotation):
            yield from _models(arg)
