"""From where a claim reads the queue of a lane, so that rows which were claimed before are not read again and again.

A row that has left the queue stays in its index as a dead entry until no transaction of the server can see it any more:
while somebody holds a snapshot, every claim that begins at the head of the queue reads all of them. So a claim begins
where the last one ended. What can lie behind that place (a row whose transaction was open for long, one that another
session had locked) is found by a claim from the head, once a second, or less often where that takes long.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

WHOLE: Final = 0.9
"""Seconds between two claims from the head of the queue: a little less than the default of `worker.poll`, so that each
poll of an idle worker begins there."""
SHARE: Final = 20
"""A claim that takes long is made again only after so many times its duration: beside a snapshot that is held for
minutes it reads a million dead entries, and would be most of the work."""
LONGEST: Final = 5.0
"""But the first that takes long is made again after so many seconds at the most: it may have waited for a lock, or this
process have stood still."""
AT_MOST: Final = 30.0
"""The same for one that is as slow as the one before it."""
OVERLAP: Final = timedelta(seconds=1)
"""How far before the moment of a claim that found no more the next one begins: a row is committed after its time."""
HEAD: Final = (datetime.min.replace(tzinfo=UTC) + timedelta(days=2), UUID(int=0))
"""Before every row."""


class Pace:
    """How many seconds after a slow look the next one is due: `SHARE` times as long as the shorter of the last two,
    because one alone may have waited. At least `every`."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._before: float | None = None

    def after(self, took: float) -> float:
        """The seconds until the next, after one that took so many."""
        before, self._before = self._before, took
        if before is None:
            return max(self._every, min(SHARE * took, LONGEST))
        return max(self._every, min(SHARE * min(took, before), AT_MOST), min(SHARE * took, LONGEST))


class QueuePosition:
    """Where the next claim of one lane of one worker begins. `now` is on the boot clock."""

    def __init__(self) -> None:
        self._begin = HEAD
        self._whole_due = 0.0
        self.claims = 0
        """Claims whose result is in it."""
        self._pace = Pace(WHOLE)

    def begin(self, now: float) -> tuple[datetime, UUID]:
        """The due time and id of the first row that the next claim looks at."""
        return HEAD if now >= self._whole_due else self._begin

    def claimed(
        self, begin: tuple[datetime, UUID], records: Sequence[Any], at: datetime, *, full: bool, now: float, took: float
    ) -> None:
        """A claim that began there took these records at the database's moment `at`. `full`: as many as it could take,
        so that more may wait behind them. `took`: seconds."""
        self.claims += 1
        if begin == HEAD:
            self._whole_due = now + self._pace.after(took)
        if not full:
            self._begin = (at - OVERLAP, UUID(int=0))
        elif records:
            self._begin = max((record.available_at, record.id) for record in records)
