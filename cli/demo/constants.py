"""The time constants of the demo's contracts, close to those of production, and scaled by one factor.

Two are not the defaults: `pause_allowance` is 5m here and 15m there, `reconciler.lease` 60s here and 90s there.
Otherwise the demo would need three times as long to trust an absence.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SMALLEST_FACTOR = 0.03
"""Below it, delays of a busy machine exceed the times that separate safe from unsafe."""

DAY = 86400.0

REAL: Mapping[str, tuple[float, str]] = {
    "connect_timeout": (5.0, "before any byte is sent"),
    "deadline": (20.0, "the whole call"),
    "flight_limit": (120.0, "how long a sent request may still act"),
    "pause_allowance": (300.0, "how long a frozen worker may still send"),
    "horizon": (60.0, "when a look-up reliably shows an effect"),
    "retention": (DAY, "how long the bank remembers a key"),
    "give_up_after": (DAY, "how long a payment may wait to start"),
    "pending_limit": (10 * DAY, "until a pending payment is a dead letter"),
    "worker.lease": (60.0, "a claim"),
    "worker.margin": (5.0, "what must be left of the lease after a call"),
    "reconciler.lease": (60.0, "a reconciler's claim"),
    "bank.latency": (0.4, "each request"),
    "bank.late_effect": (50.0, "the latest effect of a stalled request"),
    "bank.lookup_lag": (30.0, "until a payment is visible"),
    "bank.pending": (40.0, "a pending payment"),
    "bank.drip": (4.0, "between two bytes of a dripped answer"),
}
"""In seconds, and what each is. The bank keeps its contract: a request acts at the latest `late_effect` after it left,
well inside `flight_limit`, and is visible to look-ups after `lookup_lag`, well inside `horizon`."""

SCHEDULE = (5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, DAY)
PENDING_SCHEDULE = (60.0, 600.0, 3600.0, 21600.0, DAY)

UNSCALED = "polling (0.25 to 0.5 s), heartbeats (5 s), back-off of what never left (1 to 60 s), Retry-After of the bank"
"""What the factor does not touch: the pace of the daemons, not the contract."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The scaled times, in seconds."""

    factor: float

    def __getitem__(self, name: str) -> float:
        return REAL[name][0] * self.factor

    @property
    def schedule(self) -> tuple[float, ...]:
        return tuple(step * self.factor for step in SCHEDULE)

    @property
    def pending_schedule(self) -> tuple[float, ...]:
        return tuple(step * self.factor for step in PENDING_SCHEDULE)

    @property
    def margin(self) -> float:
        """How far a replay stays away from the end of the retention."""
        return self["flight_limit"] + self["pause_allowance"]

    def table(self) -> list[tuple[str, float, float, str]]:
        """Each constant: name, real seconds, scaled seconds, what it is."""
        rows = [(name, real, real * self.factor, why) for name, (real, why) in REAL.items()]
        rows.insert(6, ("retention margin", self.margin / self.factor, self.margin, "flight limit + pause allowance"))
        return rows
