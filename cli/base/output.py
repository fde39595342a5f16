"""Output of the commands: JSON with stable keys, or tables for people. Messages go to standard error."""

import base64
import codecs
import contextlib
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import typer

from idem.outbox.values.terminal import encoded, printable


def as_json(data: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Print as JSON: times in UTC (ISO 8601), bytes in base64, integers digit for digit. `indent` None: in one line.

    It escapes invisible characters and those that the output's encoding lacks.
    """
    codec = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name
    typer.echo(encoded(data, default=_plain, indent=indent, ascii=not codec.startswith("utf")))


def _plain(value: object) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case UUID() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return dict(value)
        case set() | frozenset() | tuple():
            return list(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form here")


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, drop: Sequence[str] = ()
) -> Collection[str]:
    """Print rows, or `empty` if there are none. Returns the columns that it printed.

    If the width is known (`terminal`), the table fits into it: it shortens ids and leaves out columns in the order of
    `drop`. Otherwise it cuts nothing.
    """
    if not rows:
        labelled("", empty)
        return ()
    if (width := terminal()) is not None:
        from idem.cli.base.tables import lines

        made = lines(columns, rows, width, drop=drop)
        for line in made:
            typer.echo(line)
        return [column for column in columns if f"  {column}  " in f"  {made[0]}  "]
    cells = [[text(cell) for cell in row] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    for row in [list(columns), *cells]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return columns


def terminal() -> int | None:
    """The width for output: the terminal's, or COLUMNS if the output is not a terminal; None without both."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return None
    return max(shutil.get_terminal_size().columns, 20)


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other, without those that are None."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        labelled(f"{name.ljust(width)}  ", text(value))


def labelled(label: str, value: str) -> None:
    """Print a label and a text; on a terminal the text wraps between words, aligned behind the label."""
    width = terminal()
    if width is None or len(label) + len(value) <= width:
        typer.echo(f"{label}{value}")
        return
    from idem.cli.base.tables import paragraph

    for line in paragraph(label, value, width):
        typer.echo(line)


def text(value: object) -> str:
    """A value for people, in one line. Control characters in it cannot move the cursor."""
    match value:
        case None:
            return "-"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case Mapping() | list():
            return encoded(value, default=_plain)
        case _:
            return printable(str(value))


def state_text(intent: Mapping[str, Any]) -> str:
    """The state of an intent's key, with the outcome if there is one: `completed (succeeded)`."""
    return f"{intent['state']} ({intent['outcome']})" if intent["outcome"] else str(intent["state"])


def age(seconds: float | None) -> str:
    """A duration in its two largest units: `3d 4h`, `12m 5s`."""
    from idem.outbox.values import durations

    return "-" if seconds is None else durations.rough(seconds)


def say(message: str) -> None:
    """Print a message to standard error. It is lost if the reader is gone."""
    with contextlib.suppress(OSError):
        typer.echo("\n".join(printable(line) for line in message.split("\n")), err=True)
