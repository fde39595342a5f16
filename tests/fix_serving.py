"""A server in the test's loop, and its work in each turn of the loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import h11
import pytest

from idem.outbox.http_server.serving import listen, serve_on


@contextlib.asynccontextmanager
async def served(app: object, most: int | None = None) -> AsyncIterator[int]:
    """The port of a server in this loop."""
    stop, taken = asyncio.Event(), listen("127.0.0.1", 0)
    port: int = taken.getsockname()[1]
    running = asyncio.create_task(serve_on(taken, app, stop, most=most))
    try:
        yield port
    finally:
        stop.set()
        await asyncio.wait_for(running, 60)


class Steps:
    """The HTTP parser's events: in all, and at most in one turn of the loop."""

    def __init__(self) -> None:
        self.total = self.turn = self.most = 0

    def count(self) -> None:
        self.total += 1
        self.turn += 1
        self.most = max(self.most, self.turn)

    async def turns(self) -> None:
        while True:
            self.turn = 0
            await asyncio.sleep(0)


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Count them inside the block, in a running loop."""
    steps, real = Steps(), h11.Connection.next_event

    def next_event(self: h11.Connection) -> object:
        steps.count()
        return real(self)

    with monkeypatch.context() as patched:
        patched.setattr(h11.Connection, "next_event", next_event)
        task = asyncio.get_running_loop().create_task(steps.turns())
        try:
            yield steps
        finally:
            task.cancel()
