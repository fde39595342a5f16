"""Checks the functions that the code gives idem, where it gives them: not at the first customer's request."""

import inspect
from typing import Any

from idem.outbox.values.errors import ConfigError


def check(place: str, function: Any, takes: str, *numbers: int) -> None:
    """Raises ConfigError unless it is None, or a plain function that can be called with one of these numbers of values.

    Without numbers a framework calls it: it may be asynchronous, and take what that framework knows.
    """
    if function is None:
        return
    if not callable(function):
        raise ConfigError(f"{place} {takes}: give a function, not {function!r}")
    if not numbers:
        return
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{place} {takes}: idem does not await it, so write it with `def`, not `async def`")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function written in C that does not say what it takes
        return
    for number in numbers:
        try:
            signature.bind(*[None] * number)
        except TypeError:
            continue
        return
    raise ConfigError(f"{place} {takes}; this function has the parameters {signature}")
