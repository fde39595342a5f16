"""The clock of this machine that goes on while the machine sleeps: for the budget of a lease, and for nothing else.

Due times, leases and guards are the database's (docs/design.md section 4). A worker only needs to know how much of a
lease is certainly left, and `time.monotonic()` of Linux does not count the time of a suspended machine (hazard 1).
"""

import time

_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Where there is no CLOCK_BOOTTIME: CLOCK_MONOTONIC of macOS counts sleep, unlike `time.monotonic()` there."""


def boottime() -> float:
    """Seconds since an arbitrary start, never going back, suspension included where the system can tell."""
    if _CLOCK is None:
        return time.monotonic()
    return time.clock_gettime(_CLOCK)
