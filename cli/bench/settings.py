"""What a bench measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BenchPart(StrEnum):
    """What can be measured."""

    ACCEPT = "accept"
    """One intent a transaction, over many connections."""
    DRAIN = "drain"
    """Pending intents through a function that does nothing."""
    HTTP = "http"
    """The same through a local HTTP provider."""
    TLS = "tls"
    """The same over TLS."""
    LATENCY = "latency"
    """One intent at a time, on an idle worker."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """One bench.

    `intents`: of accept and drain; half as many go over HTTP. `connections`: of the accepting client. `slots`: calls in
    flight, of one worker. `latency`: seconds after which the HTTP provider answers. `processes`: workers. `repeat`: how
    often everything is measured; the result is the median.
    """

    intents: int = 5000
    parts: frozenset[BenchPart] = frozenset(BenchPart)
    connections: int = 16
    slots: int = 100
    latency: float = 0.02
    processes: int = 1
    repeat: int = 1

    @property
    def calls(self) -> int:
        """The intents that go over HTTP."""
        return max(1, self.intents // 2)

    @property
    def single(self) -> int:
        """The intents that are accepted one at a time."""
        return min(300, self.intents)
