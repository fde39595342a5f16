"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from idem.outbox.operator.id_prefixes import Prefix

    Id: TypeAlias = Prefix
else:
    Id = type("id", (), {})
    """How the help names the type of an id: it loads nothing of the outbox, and `an_id` reads the value."""


def _config(context: typer.Context, config: Path | None) -> Path | None:
    # It starts an installation, and all others may look at the one that runs here.
    if context.resilient_parsing or context.info_name in ("up", "demo"):
        return config
    from idem.cli.group import beside

    return beside.take(config)


Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="IDEM_CONFIG", show_envvar=True, callback=_config,
        help="The configuration; default ./idem.toml, else that of the `idem up` which runs here.",
    ),
]  # fmt: skip
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON: stable keys, times in UTC.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Why: TypeAlias = Annotated[
    str, typer.Option("--reason", help="Why: kept in the evidence, with your name.", show_default=False)
]
By: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--by", envvar="IDEM_OPERATOR", show_envvar=True, help="Who is doing this; default user@host of this machine."
    ),
]
Sure: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--i-know-it-did-not-happen",
        help="You know that it did not happen: override what only that can (a request may still act; nothing proves "
        "it, and a second call is not recognised). If you are wrong it happens twice. The evidence keeps it.",
    ),
]
Since: TypeAlias = Annotated[
    str | None,
    typer.Option("--since", help="From this time on: 2025-01-31T12:00:00Z, or how long ago, as 2h or 3d."),
]
Until: TypeAlias = Annotated[str | None, typer.Option("--until", help="Before this time, written as --since is.")]
Provider: TypeAlias = Annotated[str | None, typer.Option("--provider", help="Only of this provider.")]
Account: TypeAlias = Annotated[str | None, typer.Option("--account", help="Only of this account of a provider.")]
Label: TypeAlias = Annotated[str | None, typer.Option("--label", help="Only intents with this label.")]
Reference: TypeAlias = Annotated[
    str | None, typer.Option("--reference", help="Only intents with this reference of the provider.")
]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to show.")]

Params: TypeAlias = Annotated[
    bool, typer.Option("--params", help="The client's params too; they may be personal data.")
]


def an_id(text: str) -> Prefix:
    """An id, or its beginning. Raises a usage error."""
    from idem.outbox.operator.id_prefixes import Prefix

    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Unmask: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--unmask",
        help="The frozen request and the provider's answers with their values. The evidence keeps that you looked.",
    ),
]


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def who(by: str | None) -> str:
    """The operator's identity."""
    if by:
        return by
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())  # an account without a name, as containers have
    return f"{user}@{socket.gethostname()}"


def moment(value: str | None, option: str = "--since") -> datetime | float | None:
    """A time, or how many seconds ago it was, which `opening.time_of` reads on the database's clock.

    A time without an offset is in UTC. Raises a usage error.
    """
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        pass
    else:
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    from idem.outbox.values import durations

    try:
        return durations.parse(value)
    except ValueError:
        raise typer.BadParameter(
            f"{value!r} is no time: write 2025-01-31T12:00:00Z, or how long ago, as 90s, 2h or 3d",
            param_hint=option,
        ) from None


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless `yes`. Where nobody can answer it is refused, not assumed."""
    if yes:
        return
    from idem.outbox.values.errors import OperatorRefused

    # typer.confirm would write to standard output, where the JSON goes.
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = ""
    if sys.stdin is not None:  # closed
        with contextlib.suppress(OSError, ValueError):
            answer = sys.stdin.readline()
    if not answer:
        raise OperatorRefused(
            "nothing was changed: the question got no answer. Give --yes where no person can answer it"
        )
    if answer.strip().lower() not in ("y", "yes"):
        raise OperatorRefused("nothing was changed")
