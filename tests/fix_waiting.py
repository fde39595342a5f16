"""Waiting for what other tasks and processes do, and daemons that run in the loop of a test."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar


class Closing(Protocol):
    """What has to be closed."""

    async def close(self) -> None: ...


class Running(Protocol):
    """A daemon."""

    async def run(self, stop: asyncio.Event) -> None: ...


Closed = TypeVar("Closed", bound=Closing)


async def until(check: Callable[[], object], what: object = "it", seconds: float = 60, every: float = 0.02) -> None:
    """Wait until `check()`, or what it awaits, is true; the bound is only there to fail."""
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
    """A daemon, lane or database that is closed at the end."""
    try:
        yield one
    finally:
        await one.close()


@contextlib.asynccontextmanager
async def running(*daemons: Running) -> AsyncIterator[asyncio.Event]:
    """The daemons in the background; they are stopped at the end, or by the event."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(daemon.run(stop)) for daemon in daemons]
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
