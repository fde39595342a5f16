"""The series of metrics by their label values, each looked up once."""

from functools import lru_cache
from typing import Any, Final, TypeVar

from prometheus_client import Counter, Gauge, Histogram

Labelled = TypeVar("Labelled", Counter, Gauge, Histogram)
KEPT: Final = 4096
"""Series whose object is kept: of lanes, statuses and operations there are hundreds."""


@lru_cache(maxsize=KEPT)
def _series(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)


def of(metric: Labelled, *labels: str) -> Labelled:
    """The series of a metric with these label values. The library itself looks each up under a lock, word by word."""
    found: Labelled = _series(metric, *labels)
    return found
