"""What is wrong with a configuration, as data."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake in the configuration. `where` is the setting's path, `line` its line in idem.toml if it is known."""

    level: Level
    where: str
    what: str
    do: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        return f"{self.where}{line}: {self.what}. {self.do}"


def error(where: str, what: str, do: str) -> Finding:
    return Finding("error", where, what, do)


def warning(where: str, what: str, do: str) -> Finding:
    return Finding("warning", where, what, do)
