"""The commands of `idem`, by name: one file per command, which is loaded when its command is asked for."""

from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Final

import typer

from idem.cli.base.failures import EXIT_CODES
from idem.cli.base.help import Grouped
from idem.cli.base.options import examples

COMMANDS: Final = {
    "db": ("db", "app", ""),
    "api": ("api", "app", ""),
    "webhooks": ("webhooks", "app", ""),
    "run": ("run", "run", "EXAMPLES"),
    "up": ("up", "up", "EXAMPLES"),
    "worker": ("daemons", "worker", ""),
    "sweeper": ("daemons", "sweeper", ""),
    "reconciler": ("daemons", "reconciler", ""),
    "reconcile": ("reconcile", "reconcile", "EXAMPLES"),
    "unknowns": ("unknowns", "app", ""),
    "dlq": ("dlq", "app", ""),
    "intents": ("intents", "app", ""),
    "token": ("tokens", "app", ""),
    "tenants": ("tenants", "app", ""),
    "pause": ("pause", "pause", "PAUSE_EXAMPLES"),
    "resume": ("pause", "resume", "RESUME_EXAMPLES"),
    "find": ("find", "find", "EXAMPLES"),
    "status": ("status", "status", "EXAMPLES"),
    "doctor": ("doctor.command", "doctor", "EXAMPLES"),
    "import": ("importing", "take_over", "EXAMPLES"),
    "recover": ("recover", "recover", "EXAMPLES"),
    "config": ("config", "app", ""),
    "demo": ("demo.command", "demo", "EXAMPLES"),
    "bench": ("bench.command", "bench", "EXAMPLES"),
    "bank": ("bank", "app", ""),
}
"""In the order of the help: the module, its function or group, and the examples of a function."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("idem-outbox"))
        raise typer.Exit


def idem(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """idem runs a side effect in another system once, and tells you when it cannot be sure it ran."""


def app(names: Collection[str] = COMMANDS) -> typer.Typer:
    """The command `idem` with these commands. To load and put together one takes a tenth of what all take."""
    made = typer.Typer(
        name="idem",
        cls=Grouped,
        no_args_is_help=True,
        # Plain help imports nothing, and is the same in a terminal, a file and the docs.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=examples("idem db upgrade", "idem worker run", "idem status", "idem dlq list") + "\n\n" + EXIT_CODES,
    )
    made.callback()(idem)
    for name in names:
        module, attribute, epilog = COMMANDS[name]
        loaded = import_module(f"idem.cli.{module}")
        if epilog:
            made.command(name, epilog=getattr(loaded, epilog))(getattr(loaded, attribute))
        else:
            made.add_typer(getattr(loaded, attribute), name=name)
    return made
