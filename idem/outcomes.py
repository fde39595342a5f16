"""What a call or a look-up shows: it happened, it was refused, nothing happened, or it is not known.

`Outcome` is the union of what a call may show, `Look` of what a look-up may show.
"""

from idem.outbox.domain.outcomes import (
    Absent,
    Ambiguous,
    CouldNotAsk,
    Look,
    NotExecuted,
    Outcome,
    Pending,
    Refused,
    Succeeded,
)

__all__ = [
    "Absent",
    "Ambiguous",
    "CouldNotAsk",
    "Look",
    "NotExecuted",
    "Outcome",
    "Pending",
    "Refused",
    "Succeeded",
]
