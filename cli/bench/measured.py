"""What was measured: of each workload how long it took and what it cost, by the intent."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Cost:
    """A workload. Times are microseconds an intent, `wal`, `disk` and `rss` bytes (`rss` is of the process, the others
    are by the intent), `rate` intents a second. None: it cannot be seen from here.
    """

    intents: int
    rate: float
    cpu: float | None = None
    """Of the client that accepts, or of the workers."""
    postgresql_cpu: float | None = None
    """Of the whole server: what others ask of it counts too."""
    statements: float | None = None
    commits: float | None = None
    wal: float | None = None
    dead: float | None = None
    disk: float | None = None
    rss: float | None = None

    def numbers(self) -> dict[str, float | None]:
        """All of it, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Latency:
    """Times in milliseconds of intents that were accepted one at a time: from the commit of the accept to the start of
    the call, and to the statement that settles it.
    """

    intents: int
    pick_up_p50: float
    pick_up_p99: float
    settled_p50: float
    settled_p99: float

    def numbers(self) -> dict[str, float | None]:
        """All of it, for JSON."""
        return asdict(self)


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each number of several repetitions."""
    found: dict[str, float | None] = {}
    for each in fields(Cost):
        values = [getattr(cost, each.name) for cost in costs]
        found[each.name] = None if None in values else statistics.median(values)
    return Cost(**{**found, "intents": costs[0].intents})  # type: ignore[arg-type]


def median_latency(found: Sequence[Latency]) -> Latency:
    """The same of latencies."""
    numbers = {each.name: statistics.median(getattr(one, each.name) for one in found) for each in fields(Latency)}
    return Latency(**{**numbers, "intents": found[0].intents})


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
