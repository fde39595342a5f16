"""The head of a provider's answer is read a little at a time, and has a bound.

h11 takes a step for each line of a head and for each answer of 1xx before the real one, and takes all of them that one
read has brought before the loop has its turn. httpx then reads every Set-Cookie. A read of 64 kB can bring 20,000
lines, to each slot of each lane.
"""

import asyncio
import ssl
from typing import Any, Final

import httpcore
import httpx

LINES: Final = 200
"""Lines of a head, those of the 1xx answers before it counted too: as many as a client's head may have here."""
PIECE: Final = 2048
"""Bytes of a head that are read, and parsed, in one turn of the loop."""


class HeadTooLong(Exception):
    """The head of the answer has more lines than are read. The connection is closed."""


def bound(client: httpx.AsyncClient) -> None:
    """Have this client read the head of each answer in pieces, and no more than `LINES` lines and a piece of it.

    It uses private attributes of httpx; in a release that lacks them heads are read as httpx reads them.
    """
    pool = getattr(getattr(client, "_transport", None), "_pool", None)
    inner = getattr(pool, "_network_backend", None)
    if pool is not None and inner is not None:
        pool._network_backend = _Backend(inner)


class HeadStream(httpcore.AsyncNetworkStream):
    """A connection for one call."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._lines = 0
        self._pieces = 0
        self._in_head = True

    def head_is_read(self) -> None:
        """The head is parsed: what follows is the body, which is read as it comes."""
        self._in_head = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Raises HeadTooLong."""
        if not self._in_head:
            return await self._inner.read(max_bytes, timeout)
        if self._lines > LINES:
            raise HeadTooLong
        if self._pieces:
            # Under TLS, what is here already is handed out without a turn of the loop.
            await asyncio.sleep(0)
        read = await self._inner.read(min(max_bytes, PIECE), timeout)
        self._pieces += 1
        self._lines += read.count(b"\n")
        return read

    # No await but that of the stream: between the last check of a call and its first byte nothing else may run.
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return HeadStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, inner: httpcore.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(self, host: str, port: int, *args: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        return HeadStream(await self._inner.connect_tcp(host, port, *args, **more))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
