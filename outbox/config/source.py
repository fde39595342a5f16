"""Where settings come from: `idem.toml`, and the `IDEM_…` variables laid over it."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from idem.outbox.config.settings import InstallationSettings
from idem.outbox.database import address
from idem.outbox.values.errors import ConfigError
from idem.outbox.values.settings_base import Section

SettingPath: TypeAlias = tuple[str | int, ...]

FILE: Final = "idem.toml"
FILE_VARIABLE: Final = "IDEM_CONFIG"
URL_VARIABLE: Final = address.VARIABLE
LARGEST: Final = 4 * 1_048_576

BESIDE: Final = (FILE_VARIABLE, "IDEM_OPERATOR", "IDEM_PG_BIN", "IDEM_KILL_RUNS")
"""Variables of idem's own that are not settings: of the command line, the embedded server and the tests."""
OF_TESTS: Final = "IDEM_TEST_"

ORCHESTRATOR: Final = re.compile(r"IDEM_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)")
"""What Kubernetes sets in every pod for every Service whose name begins with idem."""
LINK: Final = re.compile(r"(?:tcp|udp|sctp)://\S+:[0-9]+")
"""The address of such a Service: `IDEM_API_PORT` of a Service `idem-api` has it, and is not the setting `api.port`."""

HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
ASSIGNMENT: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
NAME: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def find(path: Path | str | None, env: Mapping[str, str]) -> Path:
    """The file to read: `path`, else IDEM_CONFIG, else idem.toml here."""
    return Path(path if path is not None else env.get(FILE_VARIABLE) or FILE)


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The file's tables and its text. Raises ConfigError: it is missing, cannot be read, or is not TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file. Name another one with {FILE_VARIABLE}, or write one here"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST:
        raise ConfigError(f"{path}: it has more than {LARGEST} bytes, too many for an idem.toml")
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: it is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None


def variables() -> dict[str, SettingPath]:
    """Every environment variable that is a setting, with the setting's place."""
    known: dict[str, SettingPath] = {"IDEM_ENVIRONMENT": ("environment",), "IDEM_APP": ("app",)}
    for name, field in InstallationSettings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            for setting, inner in section.model_fields.items():
                # Only the file can set a setting that is a table.
                if setting != "url_from" and not isinstance(inner.default, Section) and inner.default_factory is None:
                    known[f"IDEM_{name}_{setting}".upper()] = (name, setting)
    return known


def overlay(raw: dict[str, Any], env: Mapping[str, str]) -> tuple[dict[str, Any], dict[SettingPath, str]]:
    """The tables with the variables laid over them, and which variable each of these settings is from.

    An empty variable is one that is not set: compose files pass them on so. The address of a Service, which an
    orchestrator sets, is none either. The database's URL becomes a reference to its variable, because it may hold a
    password and settings are shown to people.
    """
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in raw.items()}
    origins: dict[SettingPath, str] = {}
    for variable, loc in variables().items():
        value = env.get(variable, "")
        if not value or LINK.fullmatch(value):
            continue
        if len(loc) == 1:
            merged[str(loc[0])] = value
        else:
            section = merged.setdefault(str(loc[0]), {})
            if not isinstance(section, dict):
                continue
            if variable == URL_VARIABLE:
                section.pop("url", None)
                section["url_from"] = {"env": variable}
                origins[(loc[0], "url_from")] = variable
                continue
            section[str(loc[1])] = value
        origins[loc] = variable
    return merged, origins


def unknown(env: Mapping[str, str], named: frozenset[str]) -> Iterator[tuple[str, str | None]]:
    """The `IDEM_…` variables that nothing reads, with the nearest that there is. `named`: those that secrets name."""
    known = [*variables(), *BESIDE]
    for variable in sorted(env):
        if variable.startswith("IDEM_") and variable not in known and variable not in named:
            if variable.startswith(OF_TESTS) or ORCHESTRATOR.fullmatch(variable):
                continue
            yield variable, next(iter(difflib.get_close_matches(variable, known, 1)), None)


def lines(text: str) -> dict[SettingPath, int]:
    """The line of each table and setting, as far as a simple reading of the file finds them."""
    found: dict[SettingPath, int] = {}
    table: SettingPath = ()
    counts: dict[SettingPath, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.fullmatch(line):
            table = _names(header[2])
            # Inside an array of tables the path continues from its newest item.
            for length in range(1, len(table)):
                if table[:length] in counts:
                    table = (*table[:length], counts[table[:length]], *table[length:])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                found.setdefault(table, number)
                table = (*table, counts[table])
            found.setdefault(table, number)
        elif assignment := ASSIGNMENT.match(line):
            found.setdefault((*table, *_names(assignment[1])), number)
    return found


def _names(dotted: str) -> SettingPath:
    return tuple(name.strip("\"'") for name in NAME.findall(dotted))


def line_of(loc: SettingPath, found: Mapping[SettingPath, int]) -> int | None:
    """The line of a setting, or of the nearest table around it; None for the whole file."""
    return next((found[loc[:length]] for length in range(len(loc), 0, -1) if loc[:length] in found), None)
