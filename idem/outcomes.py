"""What a call or a look-up shows: it happened, it was refused, nothing happened, or it is not known."""

from idem.outbox.domain.outcomes import Absent, Ambiguous, CouldNotAsk, NotExecuted, Pending, Refused, Succeeded

__all__ = ["Absent", "Ambiguous", "CouldNotAsk", "NotExecuted", "Pending", "Refused", "Succeeded"]
