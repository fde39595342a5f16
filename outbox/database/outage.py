"""The breaker before the database: while it is away one request at a time asks whether it is back.

The others fail at once. Each would only wait its whole timeout for the same answer, and hold a connection of its client
and a thread meanwhile. It never lets a request through without the database: it only says "not now" sooner.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from idem.outbox.values.errors import StoreUnavailable

BELIEVED: Final = 2
"""Failures with no success between them: one may be a single connection that was closed."""

AWAY: Final = (
    "the database did not answer the requests before this one, and another request is asking it now. Nothing was "
    "written and nothing was sent: send the same request with the same key again"
)
"""The message for a request that the breaker refuses."""


class OutageQuestion:
    """The right of one request to ask the database. It ends with `Outage.asked`."""

    __slots__ = ()


class Outage:
    """What the requests of this process have seen of one database. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._probe: OutageQuestion | None = None

    @property
    def on(self) -> bool:
        """The database is away, as far as is known."""
        return self._failures >= BELIEVED

    def ask(self) -> OutageQuestion | None:
        """The right to ask the database now; None: it is away, and another request is asking. End it with `asked`."""
        with self._lock:
            question = OutageQuestion()
            if self.on:
                if self._probe is not None:
                    return None
                self._probe = question
            return question

    def asked(self, question: OutageQuestion | None, *, away: bool | None) -> None:
        """A request has asked: it was away, or it answered; None: neither is known.

        Only the request that probes ends the probe: one that began before the outage may end at any time.
        """
        with self._lock:
            if question is not None and question is self._probe:
                self._probe = None
            if away is not None:
                self._failures = min(BELIEVED, self._failures + 1) if away else 0

    @contextmanager
    def asking(self, met_away: Callable[[Exception], bool | None]) -> Iterator[None]:
        """Ask the database inside. `met_away` says what an error of it means, as in `asked`.

        Raises StoreUnavailable at once while the database is away and another request is asking it.
        """
        question = self.ask()
        if question is None:
            raise StoreUnavailable(AWAY)
        away: bool | None = None
        try:
            yield
            away = False
        except Exception as error:
            away = met_away(error)
            raise
        finally:
            self.asked(question, away=away)
