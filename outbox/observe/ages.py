"""How much is unsettled in each lane and how old it is, as metrics (P5)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.observe import metrics
from idem.outbox.observe.after_commit import ASKED
from idem.outbox.observe.series import of

KINDS: Final = (*OutboxStatus, "proof", "dead_letter")


@dataclass(frozen=True, slots=True)
class Unsettled:
    """How much of a kind is unsettled. Seconds: age of the `oldest`, and how long the first is `overdue`."""

    rows: int = 0
    oldest: float = 0.0
    overdue: float = 0.0


LaneLabels: TypeAlias = tuple[str, str]
"""A provider and an account."""
OTHER: Final[LaneLabels] = ("other", "other")
"""The labels of what belongs to no lane of the configuration."""


@dataclass
class LaneAges:
    """What is unsettled in one lane, by kind; `letters` by reason, `window_left` in seconds."""

    kinds: dict[str, Unsettled] = field(default_factory=dict)
    paused: dict[str, Unsettled] = field(default_factory=dict)
    letters: Counter[str] = field(default_factory=Counter)
    window_left: float | None = None

    def add(self, kind: str, row: Mapping[str, Any], *, paused: bool = False) -> None:
        """Add rows of a kind: how many, the oldest, how long overdue, and the time left of a replay window."""
        of = self.paused if paused else self.kinds
        before = of.get(kind, Unsettled())
        of[kind] = Unsettled(
            before.rows + row["rows"], max(before.oldest, row["oldest"] or 0.0),
            max(before.overdue, row.get("overdue") or 0.0),
        )  # fmt: skip
        windows = [left for left in (self.window_left, row.get("replay_window_left")) if left is not None]
        self.window_left = min(windows, default=None)


def set_gauges(lane: LaneLabels, seen: LaneAges) -> None:
    """How much of each kind is unsettled in a lane, and how old the oldest is (P5); what is not named is empty."""
    nothing = Unsettled()
    for what in KINDS:
        of(metrics.ROWS, what, *lane).set(seen.kinds.get(what, nothing).rows)
        of(metrics.OLDEST, what, *lane).set(seen.kinds.get(what, nothing).oldest)
    for status in OutboxStatus:
        of(metrics.PAUSED_ROWS, status, *lane).set(seen.paused.get(status, nothing).rows)
        of(metrics.PAUSED_OLDEST, status, *lane).set(seen.paused.get(status, nothing).oldest)
    for status in (OutboxStatus.PENDING, *ASKED):
        of(metrics.OVERDUE, status, *lane).set(seen.kinds.get(status, nothing).overdue)
    for reason in Reason:
        of(metrics.DEAD_LETTERS_OPEN, reason, *lane).set(seen.letters[reason])
    left = seen.window_left
    of(metrics.WINDOW, OutboxStatus.UNKNOWN, *lane).set(left if left is not None else float("inf"))
