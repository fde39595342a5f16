"""Remembers what a process has seen of the database, so that it notices one that went back to an earlier point.

Three things stand for a moment: how far the write-ahead log had come, how many heartbeats of this process the
database had kept, and the newest statement about lost commits. The log shows a server that was put back, as long as
it has not come as far again; a heartbeat that is missing shows every other way of going back too. A dump that is put
back between two heartbeats may have them all: it makes the tables anew, and the server gives them other numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

# Part of a condition: the database has forgotten a heartbeat of the daemon that asks, or all of them, or its outbox
# is another table than at the last one.
WENT_BACK = """%(beats)s > 0 AND (to_regclass('idem.outbox')::oid::bigint <> %(table)s
                                  OR NOT EXISTS (SELECT FROM idem.daemons d
                                                  WHERE d.id = %(holder)s AND d.heartbeats >= %(beats)s))"""

SHORTEST: Final = timedelta(hours=1)
"""A daemon's row is kept for at least so long after its last heartbeat: an absence says nothing later."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat as the database has committed it.

    `number`: how many there have been of this `daemon`, the last at `at` by the database's clock. `moved`: how far the
    write-ahead log had come, in bytes. `recovery_statement`: the newest statement about lost commits, of a
    daemon or of `idem recover`. `table`: the server's number of the outbox.
    """

    daemon: str
    number: int
    at: datetime
    moved: int
    recovery_statement: datetime | None
    table: int

    def undone_by(self, later: Beat) -> bool:
        """Whether the database went back behind this heartbeat of a daemon before its `later` one."""
        # The first of a row that was not there any more, or no more than there had been.
        number = None if later.number == 1 else later.number - 1
        return self.table != later.table or self.forgotten(number, later.at)

    def forgotten(self, number: int | None, now: datetime) -> bool:
        """Whether a database that has so many heartbeats (None: no row) at `now` has lost this one."""
        if number is None:
            return now - self.at < SHORTEST
        return number < self.number


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process has seen: replaced as a whole, so that what was read before a wait is one moment."""

    moved: int = 0
    recovery_statement: datetime | None = None
    beats: Mapping[str, Beat] = field(default_factory=dict)

    def beaten(self, beat: Beat) -> Memory:
        """With a heartbeat more."""
        return Memory(
            max(self.moved, beat.moved),
            newest(self.recovery_statement, beat.recovery_statement),
            {**self.beats, beat.daemon: beat},
        )

    def spoken_since(self, recovery_statement: datetime | None) -> bool:
        """Whether this statement is newer than all that this process has seen: it was given behind what went back."""
        return recovery_statement is not None and (
            self.recovery_statement is None or recovery_statement > self.recovery_statement
        )


def newest(*moments: datetime | None) -> datetime | None:
    """The newest of them that is there."""
    return max((moment for moment in moments if moment is not None), default=None)
