"""The clients of `api.py`, and its provider: raw sockets, so that what they cost hides nothing of the API's cost."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Client(asyncio.Protocol):
    """One kept connection: the next request when the answer to the last one is here whole."""

    requests: list[bytes]
    over: asyncio.Future[None]
    seconds: list[float] = field(default_factory=list)
    statuses: list[bytes] = field(default_factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._here += data
        head, end, body = self._here.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self.seconds.append(time.perf_counter() - self._began)
            self.statuses.append(head[9:12] + (b" repeated" if b"idempotent-replayed" in head.lower() else b""))
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc or ConnectionError("the API closed the connection"))

    def _next(self) -> None:
        self._here = b""
        if not self.requests:
            self.over.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(self.requests.pop())


def request(operation: str, token: str, key: str, body: bytes) -> bytes:
    """One request as bytes."""
    head = (
        f"POST /v1/intents/{operation} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _ask(address: tuple[str, int], requests: Sequence[bytes], connections: int) -> list[Client]:
    loop = asyncio.get_running_loop()
    made = []
    for number in range(connections):
        one = Client(list(requests[number::connections]), loop.create_future())
        await loop.create_connection(lambda one=one: one, *address)
        made.append(one)
    await asyncio.gather(*(each.over for each in made))
    return made


def ask(
    address: tuple[str, int], requests: Sequence[bytes], connections: int
) -> tuple[float, list[float], list[bytes]]:
    """Send all of them over so many connections: seconds in all, of each one, and the statuses of the answers."""
    began = time.perf_counter()
    clients = asyncio.run(_ask(address, requests, connections))
    took = time.perf_counter() - began
    return took, [s for each in clients for s in each.seconds], [s for each in clients for s in each.statuses]


async def provider(listening: asyncio.Event, port: list[int]) -> None:
    """A provider that does all that is asked of it, until it is cancelled."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
                body = b'{"id": "pay_1", "status": "succeeded"}'
                writer.write(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port.append(server.sockets[0].getsockname()[1])
        listening.set()
        await server.serve_forever()
