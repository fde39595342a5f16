"""The breaker of a lane: while a provider cannot be reached or refuses our credentials, its rows stay in the queue.

Pure: the time is passed in, in seconds of the boot clock. It holds back, it never decides about a row.
"""

import random
import sys
from collections.abc import Callable, Hashable
from enum import StrEnum

from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome

TRANSPORT_LIMIT = 5
"""Calls in a row that never left us."""

CONFIG_LIMIT = 5
"""Different rows refused for our configuration, no success between: one row never stops a lane (hazard 63)."""

TROUBLE_LIMIT = 10
"""Ambiguous calls in a row by transport or 5xx: each of them makes an unknown, so that it must end somewhere."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0

GRACE = 5.0
"""Seconds for which a half-open breaker waits for another row than the one that failed last."""

UNLIMITED = sys.maxsize

RAMPED = 1024
"""Calls at a time beyond which a lane that came back is as before: more than it can have slots."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One per lane. `jitter` gives a number from 0 to 1."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._transport = 0
        self._trouble = 0
        self._config: set[Hashable] = set()
        self._pauses = 0
        self._opens_at: float | None = None
        self._probe: Hashable | None = None
        self.last_failed: Hashable | None = None
        """The row that failed last: when half-open, let the claim take another one first, if there is one."""
        self.openings = 0
        """How often it has opened, or opened again after a probe that failed."""
        self.closings = 0
        """How often it has closed after being open: when it grows, everything that waited may be looked up."""
        self._at_once = UNLIMITED

    def state(self, now: float) -> BreakerState:
        if self._opens_at is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._opens_at <= now else BreakerState.OPEN

    def room(self, now: float) -> int:
        """How many calls may be begun now: all, none, or the one of a half-open breaker."""
        match self.state(now):
            case BreakerState.CLOSED:
                return UNLIMITED
            case BreakerState.OPEN:
                return 0
            case BreakerState.HALF_OPEN:
                return 0 if self._probe is not None else 1

    @property
    def at_once(self) -> int:
        """How many calls may run at a time: one after it has closed, then twice as many with each that succeeds.

        A provider that has just come back would fall again under everything that waited for it.
        """
        return self._at_once

    def wait(self, now: float) -> float:
        """Seconds until it is half-open; 0 if a call may be begun."""
        return 0.0 if self._opens_at is None else max(0.0, self._opens_at - now)

    def may_call(self, row_id: Hashable, now: float) -> bool:
        """Whether the call of this row may be begun. True takes the one call of a half-open breaker.

        Every True must be followed by `record` or `record_look`, for every end of the call.
        """
        if self._opens_at is None:
            return True
        if self.room(now) == 0 or (row_id == self.last_failed and now < self._opens_at + GRACE):
            return False
        self._probe = row_id
        return True

    def record(self, row_id: Hashable, outcome: Outcome, now: float, *, trouble: bool = True) -> None:
        """How a call ended. `trouble`: if it is ambiguous, then by transport or 5xx, not by the provider's word."""
        probed = self._end_probe(row_id)
        match outcome:
            case NotExecuted(why="given_back"):
                return
            case NotExecuted(why="transport"):
                self._transport += 1
            case NotExecuted(why="config"):
                self._config.add(row_id)
                self._reached()
            case Ambiguous() if trouble:
                self._trouble += 1
                # Bytes left us: the connection stood.
                self._transport = 0
            case NotExecuted(why="throttled") | Ambiguous():
                # An answer, but no decision: it closes nothing.
                self._reached()
                if probed:
                    self._open(now)
                return
            case _:
                self._reached()
                self._config.clear()
                self._succeeded()
                return
        self._failed(row_id, now, probed=probed)

    def record_lookup(self, question: Hashable, now: float, *, reached: bool) -> None:
        """How a look-up ended. An answer closes what silence has opened; it says nothing about refused credentials."""
        probed = self._end_probe(question)
        if reached:
            self._reached()
            if not self._over():
                self._succeeded()
            return
        self._transport += 1
        self._failed(question, now, probed=probed)

    def _succeeded(self) -> None:
        if self._opens_at is not None:
            self._shut()
        elif self._at_once < UNLIMITED:
            doubled = 2 * self._at_once
            self._at_once = doubled if doubled < RAMPED else UNLIMITED

    def _failed(self, row_id: Hashable, now: float, *, probed: bool) -> None:
        self.last_failed = row_id
        if self._at_once < UNLIMITED:
            self._at_once = 1
        if probed:
            self._pauses += 1
            self._open(now)
        elif self._opens_at is None and self._over():
            self._open(now)

    def _over(self) -> bool:
        return self._transport >= TRANSPORT_LIMIT or self._trouble >= TROUBLE_LIMIT or len(self._config) >= CONFIG_LIMIT

    def _reached(self) -> None:
        self._transport = self._trouble = 0

    def _open(self, now: float) -> None:
        longest = min(LONGEST_PAUSE, 2 * FIRST_PAUSE * 2 ** min(self._pauses, 10))
        self._opens_at = now + longest / 2 * (1 + self._jitter())
        self.openings += 1

    def _shut(self) -> None:
        self._pauses = 0
        self._at_once = 1
        self._opens_at = self._probe = self.last_failed = None
        self.closings += 1

    def _end_probe(self, row_id: Hashable) -> bool:
        if self._probe is None or self._probe != row_id:
            return False
        self._probe = None
        return True
