"""How many steps Python takes: lines and calls, of all modules. The same on every machine, unlike seconds."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], Any]) -> int:
    """Lines run and functions called by `work`, which may raise what it likes."""
    taken = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal taken
        taken += 1
        return trace

    # What a collection of garbage would run in between is no step of this work.
    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Exception:
        pass
    finally:
        sys.settrace(before)
        gc.enable()
    return taken


def grows_with_the_square(cost: Callable[[int], int], n: int) -> bool:
    """Whether twice as much costs far more than twice as much, at `n`, `2n` and `4n`."""
    cost(n)  # what is imported and cached by the first
    small, middle, large = cost(n), cost(2 * n), cost(4 * n)
    return large > 2.6 * middle and large > 5.2 * small
