"""Waiting for other tasks and processes, and daemons that run in the loop of a test."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar


class Closing(Protocol):
    """Something to close."""

    async def close(self) -> None: ...


class Running(Protocol):
    """A daemon."""

    async def run(self, stop: asyncio.Event) -> None: ...


Closed = TypeVar("Closed", bound=Closing)


async def until(check: Callable[[], object], what: object = "it", seconds: float = 60, every: float = 0.02) -> None:
    """Wait until `check()`, or what it awaits, is true; the time limit only makes a test fail."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(every)


def until_it_holds(
    check: Callable[[], object], seconds: float = 60, *, what: object = "it", every: float = 0.02
) -> None:
    """The same for a test without a loop."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(every)


@contextlib.asynccontextmanager
async def stopping(one: Closed) -> AsyncIterator[Closed]:
    """A daemon, lane or database, closed at the end."""
    try:
        yield one
    finally:
        await one.close()


@contextlib.asynccontextmanager
async def running(*daemons: Running) -> AsyncIterator[asyncio.Event]:
    """Run daemons in the background; they stop at the end, or when the event is set."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(daemon.run(stop)) for daemon in daemons]
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
