"""A pooler in transaction mode, as small as it can be: a client keeps a server connection for one transaction only.

Like PgBouncer it takes the connection that was given back last, keeps what a session has set there, and drops what the
server says between transactions, notifications above all. It reads PostgreSQL's messages, so it is not `Proxy`.
"""

import asyncio
import contextlib
import struct
from typing import Self

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TransactionPooler:
    """`async with TransactionPooler(target) as pooler:`, then connect to 127.0.0.1:`pooler.port`.

    The server must trust us. `size` is how many server connections there may be.
    """

    def __init__(self, target: tuple[str, int] | str, size: int = 4) -> None:
        self._target = target
        self._free: list[Pair] = []
        self._slots = asyncio.Semaphore(size)
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            startup = await _packet(reader)
            while struct.unpack("!I", startup[4:8])[0] in (80877103, 80877104):  # neither TLS nor GSS here
                writer.write(b"N")
                startup = await _packet(reader)
            if struct.unpack("!I", startup[4:8])[0] == 80877102:  # a request to cancel: nobody is asked
                writer.close()
                return
            await self._greet(startup, writer)
            message = await _message(reader)
            while message[:1] != b"X":
                message = await self._transaction(message, reader, writer)
        writer.close()

    async def _greet(self, startup: bytes, writer: asyncio.StreamWriter) -> None:
        async with self._slots:
            server = await self._take(startup)
            # Its own key to cancel by, which is no process of the server's.
            writer.write(self._said.replace(self._key, b"K" + struct.pack("!III", 12, 1, 1)))
            self._free.append(server)

    async def _take(self, startup: bytes) -> Pair:
        if self._free:
            return self._free.pop()
        if isinstance(self._target, str):
            pair = await asyncio.open_unix_connection(self._target)
        else:
            pair = await asyncio.open_connection(*self._target)
        self._open.add(pair[1])
        pair[1].write(startup)
        said = b""
        while True:
            message = await _message(pair[0])
            said += message
            if message[:1] == b"K":
                self._key = message
            if message[:1] == b"Z":
                self._said, self._startup = said, startup
                return pair

    async def _transaction(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        # Returns what the client says next, which begins another transaction.
        async with self._slots:
            theirs, to_server = await self._take(self._startup)
            to_server.write(first)
            asking: asyncio.Task[bytes] = asyncio.create_task(_message(reader))
            answer: asyncio.Task[bytes] = asyncio.create_task(_message(theirs))
            while True:
                await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    said = answer.result()
                    writer.write(said)
                    if said == b"Z\0\0\0\5I":
                        break
                    answer = asyncio.create_task(_message(theirs))
                if asking.done():
                    to_server.write(asking.result())
                    asking = asyncio.create_task(_message(reader))
            self._free.append((theirs, to_server))
        return await asking


async def _packet(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack("!I", length)[0] - 4)


async def _message(reader: asyncio.StreamReader) -> bytes:
    kind = await reader.readexactly(1)
    return kind + await _packet(reader)
