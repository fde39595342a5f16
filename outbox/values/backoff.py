"""How long to wait: pure, with jitter, so that what failed together does not come back together (IB-140)."""

import random
from collections.abc import Callable

Random = Callable[[], float]


def backoff(failures: int, *, base: float, cap: float, rand: Random = random.random) -> float:
    """Seconds to wait after `failures` failures in a row (0 is the first): doubling from `base` up to `cap`.

    The result lies between half and the whole of the doubled value, and is never below `base / 2`.
    """
    whole = min(cap, base * 2.0 ** min(failures, 30))
    return whole * (0.5 + rand() / 2)


def not_before(seconds: float, *, spread: float = 0.2, rand: Random = random.random) -> float:
    """`seconds` or somewhat later, never earlier: for a wait that the provider asked for."""
    return seconds * (1.0 + spread * rand())
