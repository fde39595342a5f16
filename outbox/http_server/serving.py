"""An ASGI application on a port, inside a running loop, until an event is set.

uvicorn does the HTTP; signals, the taking and the end of connections and the port are ours, because a daemon stops in
one way only, and because no client may take the place of all others.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from idem.outbox.daemon.retry import wait
from idem.outbox.http_server import descriptors
from idem.outbox.http_server.connections import KEEP_ALIVE, Connection, Connections
from idem.outbox.http_server.framing import LARGEST_HEAD
from idem.outbox.http_server.framing_checks import Gate
from idem.outbox.observe import telemetry
from idem.outbox.values.errors import ConfigError

BACKLOG: Final = 4096
"""Connections that may wait to be taken; the kernel cuts it to net.core.somaxconn."""

GRACE: Final = 40
"""Seconds for which running requests may go on after the end of listening. Those that wait are answered before it."""

DATE: Final = 1.0
"""Seconds for which the date in the answers stays."""

# It has its own lines for every start, stop and bad request; idem's events say what a person needs.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listening: socket.socket, connections: Connections) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._leaving = asyncio.Event()
        self._listening = listening
        self._connections = connections
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise RuntimeError("the application did not start")
        self.servers = []
        self._accepting = asyncio.create_task(self._connections.accept(self._listening, self._connection))
        self.started = True
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        await super().shutdown([self._listening])

    async def main_loop(self) -> None:
        # Its own looks ten times a second whether it is to end. What is left to do is the date in each answer.
        while not self.should_exit:
            await self.on_tick(0)
            await wait(self._leaving, DATE)

    def leave(self) -> None:
        """End: take no more connections, and finish the requests that run."""
        self.should_exit = True
        self._leaving.set()

    def _connection(self) -> Connection:
        return Connection(
            self._connections, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises ConfigError where the address cannot be taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise ConfigError(f"{host}: cannot listen on this address: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        why = "another process is listening there" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigError(f"cannot listen on {host}:{port}: {why}. Choose another port") from None
    return listening


async def serve(
    app: Any,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    drain: float = 0.0,
    ready: Callable[[str, int], None] | None = None,
    name: str = "api",
    reserved: int = 0,
) -> None:
    """Serve until `stop` is set and `drain` more seconds have passed; running requests are finished.

    `ready` is called once with the address that is listened on. The app's lifespan, if it has one, is around all of
    it. `name` stands in the event that no connection can be taken; `reserved` descriptors are the process's own. Raises
    ConfigError where the address cannot be taken.
    """
    await serve_on(listen(host, port), app, stop, drain=drain, ready=ready, name=name, reserved=reserved)


async def serve_on(
    listening: socket.socket,
    app: Any,
    stop: asyncio.Event,
    *,
    drain: float = 0.0,
    ready: Callable[[str, int], None] | None = None,
    name: str = "api",
    reserved: int = 0,
    most: int | None = None,
) -> None:
    """The same on a socket that listens, and is closed at the end; at most `most` connections."""
    room = descriptors.room(reserved)
    doing = f"taking connections: {descriptors.LIMIT_TEXT}"
    connections = Connections(
        room if most is None else min(room, most), lambda error: telemetry.broken(name, error, doing)
    )
    config = uvicorn.Config(
        Gate(app),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    server = _Server(config, listening, connections)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    up, stopped = asyncio.create_task(server.up.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({up, running}, return_when=asyncio.FIRST_COMPLETED)
        if up.done() and ready is not None:
            address = listening.getsockname()
            ready(address[0], address[1])
        await asyncio.wait({stopped, running}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and drain > 0:
            await asyncio.sleep(drain)
    finally:
        up.cancel()
        stopped.cancel()
        server.leave()
        await running
        listening.close()
