"""The result of importing a file, and whether lost commits may have sent its new lines before."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from idem.outbox.importing.records import LineError

ERRORS = 100
"""How many wrong lines to keep; the others are only counted."""
UNSENT = ("queued", "failed")
"""What idem sends as new, or on a client's retry or a redrive."""
AFTER_A_LOSS = (
    "nothing was written: {unsent} of the new lines are queued or failed, and this database has lost commits (noticed "
    "{at:%Y-%m-%d %H:%M} UTC). If such a line was imported before and is lost with these commits, idem may have sent "
    "it, and would send it again. Run `idem reconcile --since TIME_OF_THE_BACKUP` first, and correct the file: a line "
    "whose effect the provider has is `completed` with its reference, a line that may have been sent is `in_flight`. "
    "If idem has sent none of the queued and failed lines that remain, or the provider still remembers their keys, "
    "add --not-sent-before"
)


@dataclass
class ImportReport:
    """The result of importing a file.

    `new`: lines by their state; `already`: lines imported before; `expired`: lines whose calls have ended and whose
    keys are past `expires_at`, so nothing of them is kept; `wrong`: how many lines cannot be imported, with the first
    of them in `errors`; `digests`: one for the lines of each batch, by which `take_over` knows that it reads what was
    checked; `lost_at`: when this database was last known to have lost commits, None if never.
    """

    lines: int = 0
    new: Counter[str] = field(default_factory=Counter)
    already: int = 0
    expired: int = 0
    wrong: int = 0
    errors: list[LineError] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    lost_at: datetime | None = None

    @property
    def against(self) -> str | None:
        """Why the new lines may have been sent before, and what to do; None if nothing suggests it."""
        unsent = sum(self.new[state] for state in UNSENT)
        return AFTER_A_LOSS.format(unsent=unsent, at=self.lost_at) if unsent and self.lost_at is not None else None

    def err(self, error: LineError) -> None:
        self.wrong += 1
        if len(self.errors) < ERRORS:
            self.errors.append(error)
