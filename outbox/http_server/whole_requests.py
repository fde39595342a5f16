"""A request that is here whole, in the plainest form, is read and answered without h11's state machine.

That is nearly every request of a client that keeps its connection. Everything else takes h11's way: a request in
pieces, chunks, several requests at once, whatever `Expect`, `Upgrade` or `Connection` ask for. What is read here is
read by h11 in the same way, and what is written has the same bytes: a test compares them. An answer that needs more
than a head with its length and one body puts the request into h11 first, as if it had come there.
"""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

from idem.outbox.domain.operation import WITHOUT_CONTENT
from idem.outbox.http_server.framing import Wire
from idem.outbox.http_server.transport import READ
from idem.outbox.http_server.whole_body import WHOLE_BODY

TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Of what h11 takes; what it takes besides (other control characters, folded lines) is left to it.
HEAD: Final = re.compile(
    rb"(GET|POST|DELETE|PUT|PATCH) ([\x21-\x7e]+) HTTP/1\.1\r\n((?:" + TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)+)\r\n"
)
LENGTH: Final = re.compile(rb"[0-9]{1,8}")
ANSWER_FIELDS: Final = re.compile(
    rb"(?:" + TOKEN + rb": (?:[\x21-\x7e\x80-\xff]+(?:[\t ]+[\x21-\x7e\x80-\xff]+)*)?\r\n)*"
)

UNUSUAL: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection", b"content-length", b"host"})
"""Fields of a request that say how it is read."""

STATUS_LINES: Final = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase)
    for status, phrase in STATUS_PHRASES.items()
    if status >= 200 and status not in WITHOUT_CONTENT
}
"""Of the statuses whose answer has a body of its own length."""


@dataclass(slots=True)
class WholeRequest:
    """A request and all of its bytes."""

    raw: bytes
    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def read(data: bytes) -> WholeRequest | None:
    """The one request that these bytes are; None: they are more or less than that, or h11 must say what they are."""
    if len(data) > READ or (found := HEAD.match(data)) is None:
        return None
    headers = []
    length, hosts = b"", 0
    for line in found[3][:-2].split(b"\r\n"):
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b"\t ")
        headers.append((name, value))
        if name in UNUSUAL:
            if name == b"host":
                hosts += 1
            elif name == b"content-length" and not length and LENGTH.fullmatch(value):
                length = value
            else:
                return None
    if hosts != 1 or len(data) - found.end() != int(length or 0):
        return None
    return WholeRequest(data, found[1].decode(), found[2], headers, data[found.end() :])


def scope(request: WholeRequest, common: dict[str, Any]) -> dict[str, Any]:
    """The request as ASGI has it; `common` is what all requests of its connection have, with a `state` of its own."""
    path, _, query = request.target.partition(b"?")
    common["state"][WHOLE_BODY] = request.body
    return {
        **common,
        "method": request.method,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "headers": request.headers,
    }


def answer(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes | None:
    """The bytes of an answer; None: h11 must say what they are, or refuse it."""
    line = STATUS_LINES.get(status)
    framing = [(name.lower(), value) for name, value in headers if name.lower() in FRAMING]
    fields = b"".join([b"%b: %b\r\n" % field for field in headers])
    if line is None or framing != [(b"content-length", b"%d" % len(body))]:
        return None
    # As many lines as fields: none has a line of its own inside.
    if fields.count(b"\n") != len(headers) or ANSWER_FIELDS.fullmatch(fields) is None:
        return None
    return b"%b%b\r\n%b" % (line, fields, body)


FRAMING: Final = frozenset({b"content-length", b"connection", b"transfer-encoding", b"host"})
"""Fields of an answer that h11 looks at: the first alone is written here."""


class WholeCycle(RequestResponseCycle):
    """One such request and its answer. `conn` does not know of it until an answer needs that."""

    conn: Wire

    def __init__(self, request: WholeRequest, **options: Any) -> None:
        super().__init__(**options)
        self._raw: bytes | None = request.raw
        self._start: Any = None
        self.body = bytearray(request.body)
        self.more_body = False
        self.message_event.set()

    async def send(self, message: Any) -> None:
        """A part of the answer."""
        if self._raw is None:
            await super().send(message)
        elif self._start is None and message["type"] == "http.response.start":
            self._start = message
            self.response_started = True
        else:
            await self._send_all(self._start, message)

    async def _send_all(self, start: Any, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        written = None
        if start is not None and self.keep_alive and not message.get("more_body", False):
            written = answer(start["status"], [*self.default_headers, *start["headers"]], message.get("body", b""))
        if written is not None:
            self.transport.write(written)
            self.response_complete = True
            self.message_event.set()
            self.on_response()
            return
        self._into_h11()
        if start is not None:
            await super().send(start)
        await super().send(message)

    def _into_h11(self) -> None:
        assert self._raw is not None
        self.conn.receive_data(self._raw)
        self._raw = None
        self.response_started = False
        while not isinstance(self.conn.next_event(), h11.EndOfMessage):
            pass
