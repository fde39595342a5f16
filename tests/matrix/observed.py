"""What a run leaves: plain data, which the checks read."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from matrix.cells import Cell

from idem.decisions import Decision
from idem.testing.bank import Log


@dataclass(frozen=True)
class Told:
    """One intent at the end. `answers`: what is stored, before and after it was proven again; `heard`: what its
    client hears; `proven`: what became of the same proof and of one that contradicts."""

    id: UUID
    cell: Cell
    state: str
    status: str | None
    outcome: str | None
    reference: str | None
    keys: tuple[str, ...]
    answers: tuple[tuple[Any, ...], ...]
    heard: Decision | None
    proven: tuple[str, ...]
    letters: tuple[tuple[str, bool], ...]
    evidence: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Observed:
    """What a run has left. `shifted`: seconds by which rows and the bank's clock were moved; `took`: real seconds."""

    log: Log
    intents: tuple[Told, ...]
    webhooks: bool
    events: tuple[dict[str, Any], ...]
    shifted: float
    took: float

    def of(self, cell: Cell) -> list[Told]:
        return [each for each in self.intents if each.cell == cell]
