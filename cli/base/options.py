"""Options that several commands share, and how idem parses their values."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from idem.outbox.operator.id_prefixes import Prefix

    Id: TypeAlias = Prefix
else:
    Id = type("id", (), {})
    """The type of an id in the help. It imports nothing of the outbox; `an_id` parses the value."""


def _config(context: typer.Context, config: Path | None) -> Path | None:
    # These two start an installation; every other command may use the one that runs here.
    if context.resilient_parsing or context.info_name in ("up", "demo"):
        return config
    from idem.cli.group import up_note

    return up_note.take(config)


Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="IDEM_CONFIG", show_envvar=True, callback=_config,
        help="The configuration file; default ./idem.toml, else that of the `idem up` running here.",
    ),
]  # fmt: skip
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys and times in UTC.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Why: TypeAlias = Annotated[
    str, typer.Option("--reason", help="Why; the evidence records it with your name.", show_default=False)
]
ByOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--by",
        envvar="IDEM_OPERATOR",
        show_envvar=True,
        help="Your name for the evidence; default user@host of this machine.",
    ),
]
Sure: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--i-know-it-did-not-happen",
        help="State that you know it did not happen. This overrides the guards that nothing else can (a request may "
        "still act; there is no proof, and the provider does not recognise a second call). If you are wrong, it "
        "happens twice. The evidence records it.",
    ),
]
SinceOption: TypeAlias = Annotated[
    str | None, typer.Option("--since", help="From this time on: 2025-01-31T12:00:00Z, or how long ago, e.g. 2h or 3d.")
]
ProviderOption: TypeAlias = Annotated[str | None, typer.Option("--provider", help="Only entries of this provider.")]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many entries to show.")]

Params: TypeAlias = Annotated[
    bool, typer.Option("--params", help="Also show the client's params; they may be personal data.")
]


def an_id(text: str) -> Prefix:
    """Parse an id, or its beginning. Raises a usage error."""
    from idem.outbox.operator.id_prefixes import Prefix

    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Unmask: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--unmask",
        help="Show the values in the frozen request and in the provider's answers. The evidence records that you "
        "looked.",
    ),
]


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def group(help: str, *lines: str) -> typer.Typer:
    """Commands below one name, with these examples in its help."""
    return typer.Typer(no_args_is_help=True, help=help, epilog=examples(*lines))


def id_argument(help: str) -> Any:
    """An argument of type `Id`."""
    return typer.Argument(parser=an_id, metavar="ID", help=help, show_default=False)


def id_option(help: str) -> Any:
    """An option of type `Id`."""
    return typer.Option(parser=an_id, metavar="ID", help=help)


def port_option(help: str, *, least: int = 0, **more: Any) -> Any:
    """An option for a port; with `least` 1 not any free one."""
    return typer.Option(min=least, max=65535, help=help, **more)


def who(by: str | None) -> str:
    """The operator's identity."""
    if by:
        return by
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())  # an account without a name, e.g. in a container
    return f"{user}@{socket.gethostname()}"


def moment(value: str | None, option: str = "--since") -> datetime | float | None:
    """A time, or a number of seconds ago, which `opening.time_of` turns into a time on the database's clock.

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
            f"{value!r} is not a time. Write 2025-01-31T12:00:00Z, or how long ago, e.g. 90s, 2h or 3d",
            param_hint=option,
        ) from None


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless `yes`. Without an answer it refuses; it never assumes one."""
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
        raise OperatorRefused("nothing was changed: the question got no answer. Give --yes to run without the question")
    if answer.strip().lower() not in ("y", "yes"):
        raise OperatorRefused("nothing was changed")
