"""An HTTP server with a test's answers: in the test's loop (`serving`) or in a thread (`served`)."""

import asyncio
import contextlib
import inspect
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from idem.outbox.values.background_loop import BackgroundLoop

KEPT = httpx.Limits(keepalive_expiry=None)
"""For a client that sends many requests at once: httpx closes an expired connection even if it has just given it a
request."""


@dataclass(frozen=True)
class Asked:
    """One request. The names of `headers` are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Reply: TypeAlias = "tuple[int, bytes] | bytes | None"
"""A status and a JSON body; or the bytes of a whole answer, after which the connection closes; or None: no answer."""
Answer: TypeAlias = Callable[[Asked], "Reply | Awaitable[Reply]"]


async def _read(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@contextlib.asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server in this loop, on 127.0.0.1."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                said = answer(await _read(reader))
                reply = await said if inspect.isawaitable(said) else said
                if isinstance(reply, tuple):
                    status, body = reply
                    head = (
                        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                    )
                    writer.write(head.encode() + body)
                    await writer.drain()
                    continue
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
                break
        writer.close()

    with contextlib.closing(await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)) as server:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.contextmanager
def served(answer: Answer) -> Iterator[str]:
    """The same for a test that blocks: the server has its own thread."""
    stack = contextlib.AsyncExitStack()
    with BackgroundLoop("fix_server") as background:
        url = background.call(stack.enter_async_context(serving(answer)))
        try:
            yield url
        finally:
            background.call(stack.aclose())
