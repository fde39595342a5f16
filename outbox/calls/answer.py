"""The answer of a provider, read a little at a time and with bounds.

h11 takes a step for each line of a head and for each answer of 1xx before the real one, and takes all of them that one
read has brought before the loop has its turn. A read can bring 100,000 lines, to each slot of each lane.
"""

import asyncio
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import h11
import httpx

from idem.outbox.calls.connection import ProviderConnection
from idem.outbox.domain.contract import Response
from idem.outbox.domain.operation import WITHOUT_CONTENT
from idem.outbox.values import clock

LINES: Final = 200
"""Lines of a head, those of the 1xx answers before it counted too: as many as a client's head may have here."""
PIECE: Final = 2048
"""Bytes of a head that are read, and parsed, in one turn of the loop."""
READ: Final = 1 << 16
"""Bytes of a body that are read at a time."""
BODY_LIMIT: Final = 1 << 20
"""Bytes of a response body that are read; a longer one is kept up to here and is not `complete`."""
PIECES: Final = 10_000
"""Pieces of a body, as chunked coding or the network cuts it: each costs as much as some kilobytes in one. A body
of more of them is not `complete` either."""
IN_A_TURN: Final = 50
"""Pieces that one call reads in a turn of the loop."""


class HeadTooLong(Exception):
    """The head of the answer has more lines than are read. The connection is closed."""


class BodyTooLong(Exception):
    """The response body is longer than the limit, or comes in more pieces."""


@dataclass(slots=True)
class ProviderAnswer:
    """An answer as far as it has come. `plain`: nothing about it speaks against another call on its connection."""

    limit: int = BODY_LIMIT
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    plain: bool = True
    _pieces: int = 0

    def began(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Kept at once, so that nothing that becomes of the body can lose them."""
        self.status, self.headers = status, named(headers)
        if "transfer-encoding" in self.headers and "content-length" in self.headers:
            # RFC 9112 section 6.3: one of them lies, and with it where the next answer begins.
            self.plain = False
        if status in WITHOUT_CONTENT and (
            "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"
        ):
            # A server that announces a body there may send it too, and it would be read as the next answer.
            self.plain = False

    async def add(self, piece: bytes) -> None:
        """A piece of the body. Raises BodyTooLong."""
        self.body += piece
        self._pieces += 1
        if len(self.body) > self.limit or self._pieces > PIECES:
            raise BodyTooLong
        if self._pieces % IN_A_TURN == 0:
            # What is here already is handed out without a turn of the loop.
            await asyncio.sleep(0)

    def response(self, *, complete: bool) -> Response:
        """The response as far as it came; a body in a coding that cannot be read is not complete."""
        body = bytes(self.body[: self.limit])
        plain = decoded(self.headers, body, self.limit)
        return Response(
            self.status or 0, self.headers, body if plain is None else plain, complete=complete and plain is not None
        )


async def read(connection: ProviderConnection, answer: ProviderAnswer, ends: float) -> None:
    """Read the answer to its end, which must come before the boot time `ends`.

    Raises HeadTooLong, BodyTooLong, TimeoutError, httpx.ReadError (the connection broke) and httpx.RemoteProtocolError
    (what came is no whole answer).
    """
    try:
        await _read_head(connection, answer)
        await _read_body(connection, answer, ends)
    except TimeoutError:
        raise
    except OSError as error:
        raise httpx.ReadError("the connection broke") from error
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError("no answer of HTTP/1.1") from error


async def _read_head(connection: ProviderConnection, answer: ProviderAnswer) -> None:
    lines = 0
    while lines <= LINES:
        data = await connection.read(PIECE)
        if not data:
            raise httpx.RemoteProtocolError("the server closed the connection without an answer")
        lines += data.count(b"\n")
        connection.http.receive_data(data)
        while (event := connection.http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                answer.began(event.status_code, event.headers)
                return
            if not isinstance(event, h11.InformationalResponse):
                raise httpx.RemoteProtocolError("no answer of HTTP/1.1")
            # What else a server does that says 1xx unasked is not known.
            answer.plain = False
        # What is here already is handed out without a turn of the loop.
        await asyncio.sleep(0)
    raise HeadTooLong


async def _read_body(connection: ProviderConnection, answer: ProviderAnswer, ends: float) -> None:
    http = connection.http
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            await answer.add(event.data)
        elif event is h11.NEED_DATA:
            # asyncio's clock stands still while the machine sleeps.
            if clock.boottime() > ends:
                raise TimeoutError
            http.receive_data(await connection.read(READ))
        else:
            raise httpx.RemoteProtocolError("the connection was handed over")


def named(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; several lines of one name are joined (RFC 9110 section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def decoded(headers: Mapping[str, str], body: bytes, limit: int) -> bytes | None:
    """The body without its content coding; None if it is broken, longer than `limit`, or in a coding unknown here.

    We ask for `identity`; a provider that compresses all the same must still be understood after the money moved.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity") or not body:
        return body
    if coding not in ("gzip", "x-gzip"):
        return None
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = unzip.decompress(body, limit)
    except zlib.error:
        return None
    return plain if unzip.eof and not unzip.unused_data else None
