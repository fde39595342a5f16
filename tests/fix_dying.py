"""Functions that kill their own process, for processes of the tests that die at a chosen point."""

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn


def die() -> NoReturn:
    """SIGKILL: no handler and no `finally` sees it."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError("unreachable")


def dies(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """The function in whose place the process dies: `after` it has run, or before."""

    @functools.wraps(function)
    def dying(*args: Any) -> Any:
        if not after:
            die()
        function(*args)
        die()

    return dying


def dies_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function after which the process dies."""

    async def dying(*args: Any) -> Any:
        await function(*args)
        die()

    return dying
