"""Limits the bytes of unauthenticated bodies in memory, over all connections.

Where they are too many, the body that has been on its way the longest gives way: an honest one is here in a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from idem.outbox.http_server.problems import ProblemError

AGAIN: Final = 5.0
"""Seconds after which a body that found no room may be sent again."""


class BodyMemory:
    """Room for `most` bytes, of one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._coming: dict[Reservation, None] = {}

    @contextmanager
    def held(self) -> Iterator[Reservation]:
        """The place of one body, empty at first; its bytes are free again afterwards."""
        held = Reservation(self)
        self._coming[held] = None
        try:
            yield held
        finally:
            held.complete()
            held.drop()

    def make_room(self, size: int, wanted: Reservation) -> None:
        """Room for so many bytes more. Raises ProblemError where `wanted` is what must give way."""
        while self.used + size > self.most:
            oldest = next((each for each in self._coming if each.size or each is wanted), wanted)
            oldest.give_way()
            if oldest is wanted:
                raise full()
        self.used += size

    def leave(self, held: Reservation) -> None:
        """It has arrived, or comes no further."""
        self._coming.pop(held, None)


class Reservation:
    """The bytes of one body."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._clock: asyncio.Timeout | None = None
        self.size = 0
        self.gave_way = False

    def watch(self, clock: asyncio.Timeout) -> None:
        """The timer of the reader that waits for the rest: it fires at once when this body gives way."""
        self._clock = clock

    def add(self, size: int) -> None:
        """So many bytes more are here. Raises ProblemError (`too_many_bodies`)."""
        if self.gave_way:
            raise full()
        self._memory.make_room(size, self)
        self.size += size

    def complete(self) -> None:
        """The body is here: it gives way to none, because what is left to do does not depend on its sender."""
        self._memory.leave(self)
        self._clock = None

    def drop(self) -> None:
        """Its bytes are not kept any more."""
        self._memory.used -= self.size
        self.size = 0

    def give_way(self) -> None:
        """Free its bytes, and wake the bodies that wait for room."""
        self.gave_way = True
        self.drop()
        if self._clock is not None:
            self._clock.reschedule(asyncio.get_running_loop().time())
        self.complete()


def full() -> ProblemError:
    """The problem for a body that finds no room."""
    return ProblemError(
        "too_many_bodies",
        "The bodies of other deliveries use all the memory that is set aside for them.",
        retry_after=AGAIN,
        headers={"Connection": "close"},
    )
