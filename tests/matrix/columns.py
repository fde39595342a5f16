"""The parametrisation of the matrix: a cell for every replay, fault, and webhooks on and off."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from matrix.cells import EVERY_PAIR, ROUNDS, Cell, plain
from matrix.checks import CHECKS
from matrix.observed import Observed
from matrix.variants import Replay

TIMEOUT = 7200 if EVERY_PAIR else 600
"""Seconds. The first cell of a run waits for the run."""


def cells(*replays: Replay) -> list[Any]:
    """What `@pytest.mark.parametrize(("cell", "webhooks", "turn"), …)` takes."""
    return list(_cells(replays))


def _cells(replays: Iterable[Replay]) -> Iterator[Any]:
    for replay, turn, webhooks in product(replays, range(ROUNDS), (False, True)):
        for cell in plain(replay, webhooks):
            named = f"{cell.name}-{'webhooks' if webhooks else 'polled'}"
            yield pytest.param(cell, webhooks, turn, id=named if not turn else f"{named}-{turn + 1}")


def hold(seen: Observed, cell: Cell) -> None:
    """Raises AssertionError if a check fails in this cell."""
    for check in CHECKS:
        check(seen, cell)


def sent_again_when_absent(seen: Observed) -> None:
    """Raises AssertionError unless nothing was made twice, whatever the fault, while what is absent was sent again."""
    made = {p.key or p.reference: seen.log.payments(key=p.key, reference=p.reference) for p in seen.log.payments()}
    assert {len(each) for each in made.values()} == {1}
    assert len(seen.log.sends()) > len(seen.intents) + 20
    assert not any(each.after_an_effect for each in seen.log.resends())
