"""Whether the clock of the database has jumped: each heartbeat compares it with a clock here that never does."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

SMALLEST: Final = 2.0
"""Seconds: a smaller jump harms nothing that idem counts by that clock."""
DRIFT: Final = 0.001
"""What two clocks may drift apart in a second without a jump: more than an NTP client slews."""
REMEMBERED: Final = 86400.0
"""Seconds for which a heartbeat goes on telling of a jump."""


@dataclass(frozen=True, slots=True)
class Leap:
    """A jump forward by so many `seconds`, which was noticed when the database said `at`, at `noticed` on the boot
    clock."""

    seconds: float
    at: datetime
    noticed: float


class DatabaseClock:
    """What one daemon has seen of it."""

    def __init__(self) -> None:
        self._seen: tuple[float, float, float] | None = None
        self._jumped: tuple[float, datetime, float] | None = None
        self.leap: Leap | None = None
        """The last jump forward."""

    def seen(self, at: datetime, sent: float, answered: float) -> float | None:
        """The database said `at` between these two moments of the boot clock; by how many seconds its clock has jumped
        since the last time (negative: back), None if by none that counts."""
        least, most = at.timestamp() - answered, at.timestamp() - sent
        before, self._seen = self._seen, (least, most, sent)
        if before is None:
            return None
        allowed = SMALLEST + DRIFT * (answered - before[2])
        forward, back = least - before[1], before[0] - most
        if max(forward, back) <= allowed:
            return None
        jumped = forward if forward > back else -back
        self._jumped = jumped, at, answered
        if jumped > 0:
            self.leap = Leap(jumped, at, answered)
        return jumped

    def record(self, now: float) -> dict[str, Any] | None:
        """The last jump for the daemon's row, until a day has passed by the boot clock."""
        if self._jumped is None or now - self._jumped[2] > REMEMBERED:
            return None
        return {"jumped": round(self._jumped[0], 1), "at": self._jumped[1].isoformat(timespec="seconds")}
