"""The cells of the matrix: which provider, and which faults the sends of each intent meet, in their order."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from matrix.variants import PLAIN, RETENTION, Replay, Variant

from idem.testing.bank import BankFault, FaultName, WebhookOrder
from idem.testing.bank.faults import FaultPlan

INTENTS = 4
"""Intents of a cell in one run."""
ROUNDS = -(-int(os.environ.get("IDEM_MATRIX_INTENTS", INTENTS)) // INTENTS)
"""Runs of each column. The long form of the matrix has more, one after the other: more intents at a time would only be
slower than their deadline."""
EVERY_PAIR = os.environ.get("IDEM_MATRIX_PAIRS") == "all"
"""Every fault after every fault, and not only the pairs below."""

NOT_APPLICABLE: Mapping[tuple[Replay, FaultName], str] = {}
"""Faults that a kind of replay cannot meet, each with the reason. There is none: where a bank knows no keys, what it
would keep under one (`500_cached`, `500_rolled_forward`) is still a 500 before or after an effect."""

ORDERS = (WebhookOrder(), WebhookOrder(copies=2), WebhookOrder(delay=45), WebhookOrder(delay=900))
"""How the events of the intents of a cell come, in turn: at once, twice, later, and after all has been settled."""

LONG_STALL = 1.6
"""Seconds, longer than the deadline: the bank acts when nobody waits any more."""


@dataclass(frozen=True)
class Cell:
    """One cell. `faults`: of an intent's first send, of its second ...; later ones meet none. `lookups`: of the first
    questions of the cell. `seconds`: the time of the first fault, if not the usual one. `away`: seconds after the
    accept until which the bank answers nothing but first sends."""

    variant: Variant
    faults: tuple[FaultName, ...]
    lookups: tuple[str, ...] = ()
    intents: int = INTENTS
    seconds: float | None = None
    away: float = 0.0

    @property
    def name(self) -> str:
        """Its account, at the bank and with us."""
        more = [*(["asked"] if self.lookups else []), *(["away"] if self.away else [])]
        return "--".join([self.variant.name, *map(str, self.faults), *more])

    @property
    def plans(self) -> list[FaultPlan]:
        return [each.plan for each in self.faults]

    def fault(self, nth: int) -> BankFault:
        """The fault of an intent's nth send, with times that a test can wait for."""
        name = self.faults[nth - 1]
        usual = LONG_STALL if name is FaultName.STALL_BEFORE_ACTING else None
        return BankFault(name, self.seconds if nth == 1 and self.seconds is not None else usual)


def single(variant: Variant) -> list[Cell]:
    """Every fault that the bank knows, so that a new one is in the matrix by itself."""
    return [Cell(variant, (name,)) for name in FaultName if (variant.replay, name) not in NOT_APPLICABLE]


FIRST = ("act_then_drop", "drop_before_acting", "500_cached", "stall_before_acting")
SECOND = (
    "500_cached", "409_in_flight", "act_then_drop", "401", "422_before_acting", "decline", "stall_before_acting",
)  # fmt: skip


def pairs(variant: Variant) -> Iterator[Cell]:
    """Two faults in sequence: one of the first send and one of the second, if there is one."""
    firsts, seconds = (tuple(FaultName),) * 2 if EVERY_PAIR else (FIRST, SECOND)
    for first in firsts:
        for second in seconds:
            yield Cell(variant, (FaultName(first), FaultName(second)), intents=max(1, INTENTS // 4))


def asked(variant: Variant) -> Iterator[Cell]:
    """The questions meet faults too: they count as nothing (hazard 27)."""
    for name in ("act_then_drop", "drop_before_acting"):
        yield Cell(variant, (FaultName(name), FaultName("503")), ("503", "broken_body", "cut_body", "429") * 2)


def plain(replay: Replay, webhooks: bool) -> tuple[Cell, ...]:
    """The column of this replay. Pairs are polled, unless all of them are wanted: an event settles most of them."""
    variant = PLAIN[replay]
    return (*single(variant), *asked(variant), *(pairs(variant) if EVERY_PAIR or not webhooks else ()))


AWAY = RETENTION + 100
"""Seconds: the bank comes back when the replays must have ended."""


def crossing(variant: Variant) -> tuple[Cell, ...]:
    """The bank cannot be had until long after the end of the retention."""
    return tuple(Cell(variant, (FaultName(name),), away=AWAY) for name in ("act_then_drop", "drop_before_acting"))


def some(variant: Variant, *names: str, seconds: float | None = None) -> tuple[Cell, ...]:
    """A cell for each of these faults."""
    return tuple(Cell(variant, (FaultName(name),), seconds=seconds) for name in names)
