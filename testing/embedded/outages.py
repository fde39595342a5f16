"""Stops the server for a while on purpose, while users hold it."""

import math
from pathlib import Path

from idem.testing.embedded import notes

_REQUEST = "outage.request"


def request(home: Path, seconds: float) -> None:
    """Ask the supervisor of this home for an outage."""
    notes.leave(home / _REQUEST, repr(float(seconds)))


def requested(home: Path) -> float | None:
    """The seconds of the outage that is asked for; None if none is."""
    try:
        seconds = float((home / _REQUEST).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def confirm(home: Path) -> None:
    """Tell who asked that the server is down."""
    (home / _REQUEST).unlink(missing_ok=True)


def is_pending(home: Path) -> bool:
    """Whether a request waits for its supervisor."""
    return (home / _REQUEST).exists()
