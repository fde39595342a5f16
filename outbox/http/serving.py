"""An ASGI application on a port, inside a running loop, until an event is set.

uvicorn does the HTTP; signals, the end of listening and the port are ours, because a daemon stops in one way only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from idem.outbox.errors import ConfigError

BACKLOG: Final = 4096
"""Connections that may wait to be taken; the kernel cuts it to net.core.somaxconn."""

LARGEST_HEAD: Final = 32 * 1024
"""Bytes of request line and headers together: far more than a key, a token and a trace need."""

KEEP_ALIVE: Final = 75
"""Seconds for which an idle connection is kept: longer than load balancers keep theirs (60 s as a rule), because what
they send on a connection that is just being closed fails."""

GRACE: Final = 40
"""Seconds for which running requests may go on after the end of listening. Those that wait are answered before it."""

# It has its own lines for every start, stop and bad request; idem's events say what a person needs.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises ConfigError where the address cannot be taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        taken = socket.socket(found[0], socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{host}: this address cannot be listened on: {error.strerror}") from None
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(found[4])
        taken.listen(BACKLOG)
        taken.setblocking(False)
    except OSError as error:
        taken.close()
        why = "another process listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigError(f"{host}:{port} cannot be listened on: {why}. Choose another --port") from None
    return taken


async def serve(
    app: Any,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    drain: float = 0.0,
    ready: Callable[[str, int], None] | None = None,
) -> None:
    """Serve until `stop` is set and `drain` more seconds have passed; running requests are finished.

    `ready` is called once with the address that is listened on. The app's lifespan, if it has one, is around all of
    it. Raises ConfigError where the address cannot be taken.
    """
    taken = listen(host, port)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[taken]))
    up, stopped = asyncio.create_task(server.up.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({up, running}, return_when=asyncio.FIRST_COMPLETED)
        if up.done() and ready is not None:
            address = taken.getsockname()
            ready(address[0], address[1])
        await asyncio.wait({stopped, running}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and drain > 0:
            await asyncio.sleep(drain)
    finally:
        up.cancel()
        stopped.cancel()
        server.should_exit = True
        await running
        taken.close()
