"""A client that sends exactly the given bytes: a header twice, a key that is not ASCII, a truncated body.

A normal client repairs or refuses what a server must refuse. So this client writes requests by hand and parses only
answers, with h11. It uses one connection per request.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import h11

from idem.outbox.calls.tls_settings import ssl_context

READ: Final = 65536
LARGEST_HEAD: Final = 256 * 1024

Header: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """An answer. Names of headers are in lower case; a header that was sent twice is in it twice."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float = 0.0

    def header(self, name: str) -> str | None:
        """The last value of a header; None if the answer does not have it."""
        return next((value for found, value in reversed(self.headers) if found == name.lower()), None)

    def json(self) -> Any:
        """The body as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.body)

    def intent(self) -> str | None:
        """The id of the intent: `intent` of the body, else the end of Location or Content-Location."""
        try:
            body = self.json()
        except ValueError:
            body = None
        if isinstance(body, dict) and isinstance(body.get("intent"), str):
            return str(body["intent"])
        location = self.header("location") or self.header("content-location")
        return location.rpartition("/")[2] if location else None


class HungUp(Exception):
    """The server closed the connection without an answer, or ours was closed on purpose."""


class Client:
    """Requests to one origin. `timeout` is in seconds, for a whole exchange."""

    def __init__(self, url: str, *, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is not an http(s) URL")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl_context() if parts.scheme == "https" else None
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout

    async def send(
        self,
        method: str,
        path: str,
        headers: Iterable[Header] = (),
        body: bytes | None = None,
        *,
        host: bool = True,
        length: bool = True,
        hang_up_after: float | None = None,
    ) -> WireAnswer:
        """One exchange. `host` and `length` False leave out these headers; `hang_up_after` closes the connection, in
        seconds.

        Raises HungUp if no whole answer came, TimeoutError, OSError.
        """
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(self._timeout):
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
            try:
                writer.write(self._written(method, path, headers, body, host=host, length=length))
                with contextlib.suppress(ConnectionError):  # the server may answer before it has read everything
                    await writer.drain()
                if hang_up_after is not None:
                    await asyncio.sleep(hang_up_after)
                    raise HungUp("closed by this client, on purpose")
                status, found, content = await _read(reader, method)
            finally:
                writer.close()
        return WireAnswer(status, found, content, asyncio.get_running_loop().time() - began)

    def _written(
        self, method: str, path: str, headers: Iterable[Header], body: bytes | None, *, host: bool, length: bool
    ) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1".encode()]
        if host:
            lines.append(b"Host: " + self._authority.encode())
        lines += [name.encode() + b": " + value for name, value in headers]
        if body is not None and length:
            lines.append(b"Content-Length: %d" % len(body))
        lines.append(b"Connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


async def _read(reader: asyncio.StreamReader, method: str) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
    # The parser needs a request; only whether it is HEAD matters, not what was really sent.
    asked = "HEAD" if method == "HEAD" else "GET"
    parser.send(h11.Request(method=asked, target="/", headers=[("host", "x"), ("connection", "close")]))
    parser.send(h11.EndOfMessage())
    status, headers, body = 0, (), bytearray()  # type: int, tuple[tuple[str, str], ...], bytearray
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            raise HungUp(f"no complete answer: {error}") from None
        if event is h11.NEED_DATA:
            try:
                parser.receive_data(await reader.read(READ))
            except ConnectionError as error:
                raise HungUp(f"no complete answer: {error}") from None
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return status, headers, bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise HungUp("the server closed the connection without an answer")
