"""A TCP proxy for faults: it watches traffic, cuts connections, and can be unavailable for a while.

It runs in front of a bank or a PostgreSQL, on loopback only. It changes nothing by itself; the watcher decides.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal, Self, TypeAlias

Direction: TypeAlias = Literal["to_server", "to_client"]
ProxyAction: TypeAlias = Literal["pass", "cut", "swallow"]
"""What to do with the bytes: forward them, cut the connection before them, or drop them and keep the connection open.
"""

Watcher: TypeAlias = Callable[[int, Direction, bytes], Awaitable[ProxyAction] | ProxyAction]
"""Called with the number of the connection, the direction and the bytes, before they are forwarded."""


def pass_all(_connection: int, _direction: Direction, _data: bytes) -> ProxyAction:
    """The watcher that changes nothing."""
    return "pass"


class Proxy:
    """`async with Proxy(("127.0.0.1", 5432)) as proxy:` then connect to `proxy.host`, `proxy.port`.

    `target` is a (host, port) pair or the path of a Unix socket. `after` is called after bytes were forwarded.
    """

    host = "127.0.0.1"

    def __init__(self, target: tuple[str, int] | str, watch: Watcher = pass_all, after: Watcher | None = None) -> None:
        self._target = target
        self.watch = watch
        self.after = after
        self.port = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._away = True
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        """Listen; after `stop` again on the same port."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._away = False

    async def stop(self) -> None:
        """Refuse new connections, and cut those that are open or being opened."""
        self._away = True
        if self._server is not None and self._server.sockets:
            # asyncio loses an open, unread connection if its server is closed between the accept and the transport.
            asyncio.get_running_loop().remove_reader(self._server.sockets[0].fileno())
            for _ in range(3):
                await asyncio.sleep(0)
            self._server.close()
        self.cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_all(self) -> None:
        """Cut every connection at once (RST)."""
        for writer in list(self._open):
            self._cut(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._open.add(writer)
        try:
            if isinstance(self._target, str):
                server_reader, server_writer = await asyncio.open_unix_connection(self._target)
            else:
                server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            self._cut(writer)
            return
        self._open.add(server_writer)
        if self._away or writer.transport.is_closing():
            # Accepted before the proxy stopped, or cut while it connected to the server.
            self._cut(writer)
            self._cut(server_writer)
            return
        there = asyncio.create_task(self._pump(number, "to_server", reader, server_writer))
        back = asyncio.create_task(self._pump(number, "to_client", server_reader, writer))
        for task in (there, back):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({there, back}, timeout=1.0)
        for end in (writer, server_writer):
            self._open.discard(end)
            end.close()

    async def _pump(
        self, number: int, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                action = self.watch(number, direction, data)
                action = action if isinstance(action, str) else await action
                if action == "cut":
                    # The other side closes once it sees the end.
                    self._cut(writer)
                    return
                if action == "swallow":
                    continue
                writer.write(data)
                await writer.drain()
                if self.after is not None:
                    done = self.after(number, direction, data)
                    if not isinstance(done, str):
                        await done
            if writer.can_write_eof():
                writer.write_eof()

    def _cut(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()
