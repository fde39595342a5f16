"""The channel on which idle daemons are woken: by a commit of the library, by a pause that was ended."""

from collections.abc import Collection
from typing import Final

CHANNEL: Final = "idem_outbox"

ALL: Final = ""
"""What a notification says that is for every lane, and for all other work of a worker."""
MOST: Final = 20
"""Lanes that one notification names; it may have 8,000 bytes."""


def lane_of(provider: str, account: str) -> str:
    """A lane as a notification names it."""
    return f"{provider}/{account}"


def payload(lanes: Collection[str]) -> str:
    """What a notification for these lanes says."""
    return ALL if ALL in lanes or len(lanes) > MOST else "\n".join(sorted(lanes))


def lanes(said: str) -> frozenset[str] | None:
    """The lanes that a notification names; None: it is for all."""
    return None if said == ALL else frozenset(said.split("\n"))
