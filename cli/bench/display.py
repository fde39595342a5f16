"""The progress of a bench on standard error: a bar on a terminal, else a line for each step."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

from idem.cli.base.output import say

Advance: TypeAlias = Callable[[int], None]
"""Is told how many are done."""


class BenchSteps:
    """Shows the steps. `quiet`: nothing of them."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._live = sys.stderr.isatty() and not quiet
        self._quiet = quiet

    @contextlib.contextmanager
    def step(self, words: str, total: int | None = None) -> Iterator[Advance]:
        """Show one step while the block runs. `total`: its number of intents, if the block reports progress."""
        if not self._live:
            if not self._quiet:
                say(f"{words} ...")
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(words, total=total)
            yield lambda done: progress.update(task, completed=done)
