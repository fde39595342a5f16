"""While the database is away one request at a time asks whether it is back; the others hear 503 at once.

Each would only wait its whole timeout for the same answer, and hold a connection of its client meanwhile.
"""

from __future__ import annotations

from typing import Final

BELIEVED: Final = 2
"""Failures with no success between them: one may be a single connection that was closed."""


class Outage:
    """What the requests of this process have seen of the database."""

    def __init__(self) -> None:
        self._failures = 0
        self._asking = False

    @property
    def on(self) -> bool:
        """The database is away, as far as is known."""
        return self._failures >= BELIEVED

    def ask(self) -> bool:
        """Whether a request may ask the database now. While it is away, who may ends with `asked`."""
        if not self.on:
            return True
        if self._asking:
            return False
        self._asking = True
        return True

    def asked(self, *, away: bool | None) -> None:
        """A request has asked: it was away, or it answered; None: neither can be told."""
        self._asking = False
        if away is not None:
            self._failures = min(BELIEVED, self._failures + 1) if away else 0
