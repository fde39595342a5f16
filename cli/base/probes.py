"""The port of a daemon for its metrics and its probes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from idem.cli.base import opening
from idem.cli.base.output import say


@contextlib.asynccontextmanager
async def probes(at: tuple[str, int] | None, name: str, stop: asyncio.Event | None = None) -> AsyncIterator[None]:
    """Serve `/metrics`, `/healthz` and `/readyz` of this process at this host and port, in a thread of their own.

    Both probes fail while the event loop of this process hangs, and `/readyz` also once `stop` is set. Nothing is
    served where `at` is None.

    Raises ConfigError if it cannot listen on the address.
    """
    if at is None:
        yield
        return
    from idem.outbox.http_server.side_server import Health, SideServer

    health, over = Health(), asyncio.Event()
    served = SideServer(*at, health, name=name)
    say(f"metrics and probes on http://{opening.in_url(served.host)}:{served.port}/metrics")

    async def draining(stop: asyncio.Event) -> None:
        await stop.wait()
        health.draining = True

    showing = [asyncio.create_task(health.beats(over))]
    if stop is not None:
        showing.append(asyncio.create_task(draining(stop)))
    try:
        yield
    finally:
        for each in showing:
            each.cancel()
        served.close()
