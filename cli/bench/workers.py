"""The workers of a bench: real ones, `idem worker run`, in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from idem.cli.bench.job import JobFailed
from idem.cli.group.children import Children

STOP = 10.0
"""Seconds that a worker has to finish its calls."""


class Workers:
    """Running workers. None is started again when it dies: what it measured would be worth nothing."""

    def __init__(self, children: Children, count: int) -> None:
        self._children = [
            children.start(
                f"worker-{number}", "idem.cli.main", "worker", "run", "--log", "json", "--log-level", "warning"
            )
            for number in range(1, count + 1)
        ]

    @property
    def pids(self) -> list[int]:
        """Their processes. Raises JobFailed if one has ended."""
        found = []
        for child in self._children:
            if child.pid is None:
                said = child.log.read_text().strip().splitlines() if child.log is not None else []
                raise JobFailed(f"{child.name} ended: {said[-1] if said else 'it said nothing'} ({child.log})")
            found.append(child.pid)
        return found


@contextlib.contextmanager
def running(environment: Mapping[str, str], folder: Path, count: int) -> Iterator[Workers]:
    """Run so many workers during the block."""
    children = Children(environment, folder)
    try:
        yield Workers(children, count)
    finally:
        children.stop(STOP)
