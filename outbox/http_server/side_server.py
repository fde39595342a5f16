"""A small server in its own thread and loop, so that probes and metrics answer while the process is busy."""

import asyncio
import time
from collections.abc import Callable
from concurrent import futures
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from idem.outbox.http_server.problems import JSON
from idem.outbox.http_server.routing import Endpoint, Routes, not_found, route
from idem.outbox.http_server.serving import listen, serve_on
from idem.outbox.observe import daemon_events, metrics
from idem.outbox.values.background_loop import BackgroundLoop
from idem.outbox.values.json_bytes import encoded

CONNECTIONS: Final = 32
"""Connections at once: those who ask here are a scraper and an orchestrator."""

HUNG: Final = 30.0
"""Seconds after which a loop that has not turned counts as hung."""


class Health:
    """The health of the process, as its own loop reports it by calling `beat` repeatedly; at least once in `HUNG`
    seconds."""

    def __init__(self) -> None:
        self.draining = False
        self._beat = time.monotonic()

    @property
    def alive(self) -> bool:
        return time.monotonic() - self._beat < HUNG

    def beat(self) -> None:
        """The loop turns."""
        self._beat = time.monotonic()

    async def beats(self, stop: asyncio.Event) -> None:
        """Show that the loop turns, until `stop`."""
        while not stop.is_set():
            self.beat()
            await asyncio.sleep(1.0)


class SideServer:
    """`/metrics`, and with a `health` `/healthz` and `/readyz`, on a port of their own until `close`.

    Raises ConfigError where the address cannot be taken.
    """

    def __init__(self, host: str, port: int, health: Health | None = None, *, name: str = "metrics") -> None:
        routes = [route("/metrics", metrics_page, "GET")]
        if health is not None:
            routes.append(route("/healthz", _said(lambda: {"alive": health.alive}), "GET"))
            routes.append(route("/readyz", _said(lambda: {"ready": health.alive and not health.draining}), "GET"))
        self._socket = listen(host, port)
        self.host, self.port = self._socket.getsockname()[:2]
        self._stop = asyncio.Event()
        self._loop = BackgroundLoop("beside")
        app = Routes(routes, not_found)
        self._serving = self._loop.send(serve_on(self._socket, app, self._stop, name=name, most=CONNECTIONS))

    def close(self) -> None:
        """Listen no more."""

        async def stop() -> None:
            self._stop.set()

        self._loop.call(stop())
        futures.wait([self._serving], timeout=5)
        self._loop.close()


async def metrics_page(_: Request) -> Response:
    """`GET /metrics`: of this process, or of its group."""
    text, media_type = metrics.exposition()
    daemon_events.metric_files(metrics.unreadable)
    return Response(text, headers={"Content-Type": media_type, "Cache-Control": "no-store"})


def _said(what: Callable[[], dict[str, bool]]) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        said = what()
        return Response(encoded(said), 200 if all(said.values()) else 503, media_type=JSON)

    return endpoint
