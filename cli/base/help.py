"""The first page of help: the commands in groups by purpose, each with a line that is never cut."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Try it": ("up", "demo", "bench", "bank"),
    "Set it up": ("config", "db", "token", "import"),
    "Run it": ("run", "api", "webhooks", "worker", "sweeper", "reconciler"),
    "Look": ("status", "doctor", "find", "intents", "unknowns", "tenants"),
    "Decide": ("dlq", "reconcile", "pause", "resume", "recover"),
}
OTHERS: Final = "Other commands"

LINES: Final[Mapping[str, str]] = {
    "up": "Run everything here, on an embedded database, to try it.",
    "demo": "Kill daemons during payments, and prove that none was doubled.",
    "bench": "Measure idem on a database, beside bare statements.",
    "bank": "A fake payment provider that fails on request.",
    "import": "Import a live outbox, with a dry run.",
    "run": "Run all daemons and the API under one supervisor.",
    "reconcile": "Settle unknown calls; compare with the provider's list.",
    "pause": "Stop calling a provider until you resume it.",
    "resume": "End a pause.",
    "status": "Show what is unsettled, which daemons run, what is paused.",
    "doctor": "Check everything, and tell what to do about each problem.",
    "db upgrade": "Create the schema or upgrade it.",
    "db current": "Print the schema's revision, and the one needed.",
    "db check": "Check that the schema has the revision needed.",
    "db sql": "Print the SQL that creates the schema.",
    "db sync": "Store the operations for idem.accept in SQL.",
    "db grant": "Grant a database role what its program needs.",
    "api run": "Serve the HTTP API and webhooks until SIGTERM.",
    "webhooks run": "Receive signed events until SIGTERM.",
    "worker run": "Claim due rows and call providers until SIGTERM.",
    "sweeper run": "End expired claims, expire keys, until SIGTERM.",
    "reconciler run": "Ask providers about unknown calls until SIGTERM.",
    "unknowns list": "List unknown calls, oldest first.",
    "unknowns export": "Print all unknown calls as CSV, with provider keys.",
    "dlq show": "Show a dead letter and the possible decisions.",
    "dlq redrive": "Retry intents under the same provider key.",
    "dlq discard": "Close an entry that belongs to no intent.",
    "intents cancel": "Cancel an intent that was not executed.",
    "intents blocked": "List what waits by an ordering key, and for what.",
    "intents unblock": "Let go on what waits for an intent.",
    "intents approve": "Approve a call that waits for a person.",
    "intents reject": "Reject a call that waits for a person.",
    "token list": "List tokens with their last use.",
    "tenants top": "Show the tenants that misuse keys most.",
    "config check": "Check everything that needs no connection.",
}
"""Short lines for commands whose first sentence is longer than a line."""


class Grouped(TyperGroup):
    """The command `idem`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for path, command in _walk(self.commands):
            command.short_help = LINES.get(path) or command.short_help

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups; commands without a group come last."""
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
