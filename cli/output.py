"""What commands print: JSON with stable keys, or tables for people; messages go to standard error."""

from __future__ import annotations

import base64
import codecs
import contextlib
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import typer

from idem.outbox.process.terminal import encoded, printable


def as_json(data: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Print as JSON: times in UTC (ISO 8601), bytes in base64, integers digit for digit. `indent` None: in one line.

    Characters that are not seen, and those that the output's encoding lacks, are escaped.
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


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows: a table on a terminal, else columns that are cut nowhere; `empty` where there is none."""
    if not rows:
        typer.echo(empty)
        return
    cells = [[text(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        grid = Table(box=None, pad_edge=False, header_style="bold")
        # An id is there to be copied: it is never broken, and a terminal that is too narrow wraps the whole line.
        ids = [any(isinstance(row[i], UUID) for row in rows) for i in range(len(columns))]
        for column, whole in zip(columns, ids, strict=True):
            grid.add_column(column, overflow="fold", no_wrap=whole)
        for row in cells:
            grid.add_row(*(escape(cell) for cell in row))
        console = Console(highlight=False)
        console.width = max(console.width, sum(38 if whole else 10 for whole in ids))
        console.print(grid)
        return
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    for row in [list(columns), *cells]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other; what is None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name.ljust(width)}  {text(value)}")


def text(value: object) -> str:
    """A value for people, in one line; control characters of foreign texts cannot move the cursor."""
    match value:
        case None:
            return "-"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case Mapping() | list():
            return encoded(value, default=_plain)
        case _:
            return printable(str(value))


def age(seconds: float | None) -> str:
    """A duration in its two largest units: `3d 4h`, `12m 5s`."""
    from idem.outbox import durations

    return "-" if seconds is None else durations.rough(seconds)


def say(message: str) -> None:
    """A message for the person at the terminal, beside the output; where nobody reads it any more, it is lost."""
    with contextlib.suppress(OSError):
        typer.echo("\n".join(printable(line) for line in message.split("\n")), err=True)
