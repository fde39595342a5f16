"""Stops the server for a while on purpose, while it has users."""

import math
from pathlib import Path

from idem.testing.embedded import notes

_REQUEST = "outage.request"


def request(home: Path, seconds: float) -> None:
    """Ask the supervisor of this home for an outage."""
    notes.leave(home / _REQUEST, repr(float(seconds)))


def requested(home: Path) -> float | None:
    """The seconds of the requested outage; None if none is requested."""
    try:
        seconds = float((home / _REQUEST).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def confirm(home: Path) -> None:
    """Confirm the request: the server is down."""
    (home / _REQUEST).unlink(missing_ok=True)


def is_pending(home: Path) -> bool:
    """Whether the supervisor has not confirmed a request yet."""
    return (home / _REQUEST).exists()
