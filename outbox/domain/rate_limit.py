"""The pace of a lane in one process: a token bucket over its part of the fleet's rate. Pure: the time is passed in.

The rate of a contract is of the whole fleet, and no process asks another before each call: it is divided by the number
of processes that serve calls, as their heartbeats show (`fleet`), or as `limits.processes` says.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from idem.outbox.domain.limits import Limits

DaemonPart: TypeAlias = Literal["worker", "reconciler"]
"""Whose calls: first sends, or look-ups with replays and cancels."""

BURST = 0.1
"""Seconds of the rate that may be saved up: one claim for several rows, and still no second with twice the rate."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How many live daemons of each kind make calls; this process counts itself before the first count."""

    workers: int = 1
    reconcilers: int = 1


def part(limits: Limits, who: DaemonPart, serving: Serving) -> float | None:
    """Calls a second of this process; None: as many as it likes. All processes together make `limits.rate`.

    Each process has the same part, but all reconcilers together have no more than `limits.lookup_share`; the workers
    have the rest.
    """
    if limits.rate is None:
        return None
    if limits.processes is not None:
        even = limits.rate / max(1, limits.processes)
        return even if who == "worker" else min(even, limits.rate * limits.lookup_share)
    reconcilers = max(serving.reconcilers, 1 if who == "reconciler" else 0)
    workers = max(serving.workers, 1 if who == "worker" else 0)
    even = limits.rate / (workers + reconcilers)
    asking = min(even, limits.rate * limits.lookup_share / reconcilers) if reconcilers else 0.0
    return asking if who == "reconciler" else (limits.rate - reconcilers * asking) / workers


class Pacer:
    """One for each lane. `rate`: calls a second; None: no limit. It begins with one token, so no restart is a burst."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._at: float | None = None

    @property
    def rate(self) -> float | None:
        """Calls a second."""
        return self._rate

    def set(self, rate: float | None, now: float) -> None:
        """Another number of processes; what was saved up or promised stays."""
        self._fill(now)
        self._rate = rate

    def room(self, now: float) -> int | None:
        """How many calls may begin at once; None: as many as anybody likes."""
        if self._rate is None:
            return None
        self._fill(now)
        return max(0, int(self._tokens + 1e-9))

    def reserve(self, now: float) -> float:
        """Take the token of one call; seconds until its turn, behind all that were reserved before."""
        if self._rate is None:
            return 0.0
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate - 1e-9)

    def give_back(self) -> None:
        """A reserved call is not made."""
        self._tokens += 1.0

    def wait(self, now: float) -> float:
        """Seconds until a call may begin; 0 if one may now."""
        if self._rate is None:
            return 0.0
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) / self._rate - 1e-9)

    def _fill(self, now: float) -> None:
        if self._rate is not None and self._at is not None:
            saved = max(self._tokens, 1.0, self._rate * BURST)
            self._tokens = min(saved, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now if self._at is None else max(self._at, now)
