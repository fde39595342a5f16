"""What `accept` decides about a request. `Decision` is their union, so that a `match` over it is total."""

from idem.outbox.domain.decisions import (
    Accepted,
    Decision,
    Expired,
    InProgress,
    Mismatch,
    NeedsOperator,
    Replay,
    Retrying,
    Unknown,
)

__all__ = [
    "Accepted",
    "Decision",
    "Expired",
    "InProgress",
    "Mismatch",
    "NeedsOperator",
    "Replay",
    "Retrying",
    "Unknown",
]
