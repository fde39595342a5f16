"""Runs that the cells of a module share: each is made once, when the first of its cells asks for it."""

import logging
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import pytest
import structlog
from fix_database import clone
from matrix import world
from matrix.cells import Cell
from matrix.checks import figures, met
from matrix.observed import Observed

Runs: TypeAlias = Callable[..., Observed]

TRIES = 3
"""Runs until the first sends have met their faults: on a machine that is too busy some do not even connect in time."""


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of transitions are no news."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def runs(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """`runs(cells, turn, webhooks=…)`: what these cells have come to that time, in a database of their own."""
    known: dict[Hashable, Observed] = {}

    def run(cells: Sequence[Cell], turn: int = 0, **options: Any) -> Observed:
        name = (tuple(cell.name for cell in cells), turn, tuple(sorted(options.items())))
        if name not in known:
            for _ in range(TRIES):
                with clone(server, template) as url:
                    known[name] = world.run(url, tmp_path_factory.mktemp("matrix"), cells, **options)
                if _met(known[name], cells):
                    break
            sys.stdout.write(f"{cells[0].variant.name}, {options}: {figures(known[name])}\n")
        return known[name]

    return run


def _met(seen: Observed, cells: Sequence[Cell]) -> bool:
    try:
        for cell in cells:
            met(seen, cell)
    except AssertionError:
        return False
    return True
