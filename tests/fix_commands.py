"""The commands of the application, by walking it."""

from collections.abc import Iterator
from typing import Any

import typer.main

from idem.cli.commands import app


def _walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(below, (*path, name))


ALL = dict(_walk(typer.main.get_command(app())))
"""Every command and group, by its path."""
COMMANDS = {path: command for path, command in ALL.items() if not getattr(command, "commands", {})}
"""What has no commands below it."""
