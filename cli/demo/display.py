"""Live progress: one updating line on a terminal, otherwise a line every few seconds."""

import asyncio
import sys
import time
from collections.abc import Callable

import typer

from idem.cli.demo.clients import Clients
from idem.cli.demo.monitor import Progress
from idem.cli.demo.processes import Processes

PLAIN_INTERVAL = 5.0
LIVE_INTERVAL = 0.5


class Display:
    """Shows the progress of a demo on standard error."""

    def __init__(self, progress: Progress, clients: Clients, processes: Processes, payments: int) -> None:
        self._progress = progress
        self._clients = clients
        self._processes = processes
        self._payments = payments
        self._began = time.monotonic()
        self._shown = 0

    async def run(self) -> None:
        """Run until cancelled."""
        if sys.stderr.isatty():
            await self._live()
        while True:
            await asyncio.sleep(PLAIN_INTERVAL)
            self._show_kills(lambda line: typer.echo(line, err=True))
            typer.echo(self._line(), err=True)

    async def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True, highlight=False)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                self._show_kills(lambda line: live.console.print(Text(line)))
                live.update(Text(self._line()), refresh=True)
                await asyncio.sleep(LIVE_INTERVAL)

    def _show_kills(self, show: Callable[[str], None]) -> None:
        for kill in self._processes.kills[self._shown :]:
            show(f"      SIGKILL {kill.name} ({kill.pid})")
        self._shown = len(self._processes.kills)
        while self._progress.notes:
            show(f"      {self._progress.notes.pop(0)}")

    def _line(self) -> str:
        p = self._progress
        if p.away:
            return f"{time.monotonic() - self._began:4.0f} s the database is unavailable"
        return (
            f"{time.monotonic() - self._began:4.0f} s  accepted {p.intents}/{self._payments}  completed {p.completed}  "
            f"queued {p.queued}  unknown {p.unknown}  awaiting {p.awaiting}  held {p.held + p.redriving}  "
            f"dead letters {p.letters}  SIGKILLs {len(self._processes.kills)}"
        )
