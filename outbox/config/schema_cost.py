"""How many steps params may cost, counted while they are checked against a JSON Schema.

A keyword that is asked of a value is one step, of about a microsecond, and one more for each 16 entries of either. The
number grows with the params and with the schema; a thousand small values against a schema of many alternatives are as
much work as a body of a megabyte.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

BASE: Final = 50_000
FOR_EACH: Final = 100
"""Steps that params may cost: so many, and so many more for each of their values."""

AT_ONCE: Final = 5_000
"""Steps that an event loop takes at once, without a thread."""

UNBROKEN: Final = 20_000
"""Steps that one search in a text may cost: nothing else of the process runs until it ends."""

_at_once: ContextVar[int | None] = ContextVar("idem_steps_at_once", default=None)


class TooCostly(Exception):
    """The params cost more steps than they may."""


class NotAtOnce(Exception):
    """The params cost more steps than a loop takes at once: they have to be checked in a thread."""


class Steps:
    """What is left of the steps of one set of params with so many values."""

    __slots__ = ("_all", "_first", "taken")

    def __init__(self, values: int) -> None:
        self._all = BASE + FOR_EACH * values
        self._first = _at_once.get()
        self.taken = 0

    def take_at_once(self, number: int) -> None:
        """Steps that cannot be interrupted, however many values there are. Raises TooCostly and NotAtOnce."""
        if number > UNBROKEN:
            raise TooCostly
        self.take(number)

    def take(self, number: int = 1) -> None:
        """Raises TooCostly and NotAtOnce."""
        self.taken += number
        if self.taken > self._all:
            raise TooCostly
        if self._first is not None and self.taken > self._first:
            raise NotAtOnce


@contextmanager
def at_once() -> Iterator[None]:
    """What is checked inside raises NotAtOnce where it needs more steps than a loop takes at once."""
    token = _at_once.set(AT_ONCE)
    try:
        yield
    finally:
        _at_once.reset(token)
