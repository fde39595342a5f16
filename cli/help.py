"""The first page of help: commands in groups by what a person wants, each with a line that is not cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Try it": ("up", "demo", "bank"),
    "Set it up": ("config", "db", "token", "import"),
    "Run it": ("run", "api", "webhooks", "worker", "sweeper", "reconciler"),
    "Look": ("status", "doctor", "find", "intents", "unknowns", "tenants"),
    "Decide": ("dlq", "reconcile", "pause", "resume", "recover"),
}
OTHERS: Final = "Other commands"

LINES: Final[Mapping[str, str]] = {
    "up": "Run everything here, on an embedded database, to try it.",
    "demo": "Kill daemons amid payments, and prove that none was doubled.",
    "bank": "A payment provider that misbehaves on order.",
    "import": "Take over a live outbox, with a dry run.",
    "run": "Run all daemons and the API under one supervisor.",
    "reconcile": "Settle what is unknown; compare with the provider's list.",
    "pause": "Stop calling a provider, until it is resumed.",
    "resume": "Take back a pause.",
    "status": "What is unsettled, which daemons live, what is paused.",
    "doctor": "Check everything, and say what to do about what is wrong.",
    "db upgrade": "Create the schema, or bring it up to date.",
    "db current": "Print the revision of the schema, and the one wanted.",
    "db check": "Check that the schema is the one that is wanted.",
    "db sql": "Print the statements of an upgrade, to run by hand.",
    "db sync": "Tell idem.accept in SQL which operations there are.",
    "db grant": "Give a database role what its program needs.",
    "api run": "Take requests over HTTP, webhooks too, until SIGTERM.",
    "webhooks run": "Take signed events until SIGTERM.",
    "worker run": "Claim due rows and make the calls, until SIGTERM.",
    "sweeper run": "End claims whose lease ran out, expire keys, until SIGTERM.",
    "reconciler run": "Ask providers about what is unknown, until SIGTERM.",
    "unknowns list": "List them, oldest first.",
    "unknowns export": "Print all of them as CSV, with their provider keys.",
    "dlq show": "Show everything that is known about a dead letter.",
    "dlq redrive": "Put intents back to work under the same provider key.",
    "dlq discard": "Close an entry that is about no intent.",
    "intents cancel": "Cancel an intent of which nothing was executed.",
    "token list": "List tokens by tenant and age, with their last use.",
    "tenants top": "Show the tenants that misuse keys most.",
    "config check": "Check everything that needs no connection.",
}
"""For commands whose own first sentence is longer than a line."""


class Grouped(TyperGroup):
    """The command `idem`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for path, command in _walk(self.commands):
            command.short_help = LINES.get(path) or command.short_help

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups; what is in none comes last."""
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.commands if name not in grouped)
        width = max(map(len, self.commands))
        for title, names in {**GROUPS, OTHERS: others}.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - 6 - width))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _walk(commands: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        yield above + name, command
        yield from _walk(getattr(command, "commands", {}), f"{above}{name} ")
