"""`python -m idem.cli.bench.provider`: an HTTP provider that answers after `latency` seconds, over TLS if it is given
`files`: a certificate and its key.

It says its `origin`. It reads as little of HTTP/1.1 as it needs, so that it costs less than what it measures.
"""

import asyncio
import itertools
import ssl
from typing import Any

from idem.cli.bench import job

HOST = "127.0.0.1"
END = b"\r\n\r\n"
LENGTH = b"\r\ncontent-length:"
ANSWER = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
BODY = b'{"id":"pay_%d","status":"succeeded"}'


class StubProvider(asyncio.Protocol):
    """One connection: each request is answered, whatever it asks."""

    _numbers = itertools.count(1)

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._buffer += data
        while (end := self._buffer.find(END)) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(LENGTH)
            length = int(head[at + len(LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + len(END) + length:
                return
            self._buffer = self._buffer[end + len(END) + length :]
            asyncio.get_running_loop().call_later(self._latency, self._answer, b"\r\nconnection: close" in head)

    def _answer(self, last: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        body = BODY % next(self._numbers)
        transport.write(ANSWER % (len(body), body))
        if last:
            transport.close()


async def serve(order: dict[str, Any]) -> None:
    """Serve until the process is ended."""
    context, latency = None, float(order["latency"])
    if order["files"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*order["files"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StubProvider(latency), HOST, 0, ssl=context, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    job.say(origin=f"{'https' if context else 'http'}://{HOST}:{port}")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(job.order()))
