"""Parses input of many small pieces in slices: one slice of one connection per iteration of the loop.

A chunk of one byte costs the parser as much as one of 64 kB, and a head of many lines as much as many heads. Without
slices a client that is not let in could hold the loop with them.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

SLICE: Final = 2048
"""Bytes of a slice: at most 342 chunks."""

STEP: Final = 256
"""Bytes that are parsed at once where there are long runs of blanks: h11's expressions try each of them twice."""

BLANKS: Final = b" " * 64

HEAD_LINES: Final = 64
BODY_LINES: Final = 16
"""Lines in what a connection brings in one turn that are parsed at once, without waiting for others."""


class Sliced(Protocol):
    """A connection that waits."""

    def parse_slice(self) -> bool:
        """Parse one slice; whether there is more."""


class Slices:
    """The connections that wait for their turn, each as often as every other."""

    def __init__(self) -> None:
        self._waiting: deque[Sliced] = deque()
        self._begun = False

    def add(self, one: Sliced) -> None:
        """It has something to parse."""
        self._waiting.append(one)
        self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._begun = False
        one = self._waiting.popleft()
        if one.parse_slice():
            self._waiting.append(one)
        self._begin()


def is_light(data: bytes, *, head: bool) -> bool:
    """Whether these bytes can be parsed at once."""
    return data.count(b"\n") <= (HEAD_LINES if head else BODY_LINES) and not has_blanks(data)


def has_blanks(data: bytes) -> bool:
    """Whether there is a long run of blanks."""
    return BLANKS in data.replace(b"\t", b" ")
