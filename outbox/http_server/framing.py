"""HTTP/1.1 framing with limits on its cost: lines of a head, bytes around a chunked body.

h11 reads the rest. What costs much there is refused before: it reads a head in one step, and each chunk for itself.
"""

from typing import Any, Final

import h11

LARGEST_HEAD: Final = 32 * 1024
"""Bytes of request line and headers together: far more than a key, a token and a trace need."""

LINES: Final = 200
"""Lines of a head: far more than clients and the proxies before idem send."""

FRAMING: Final = 1024
"""Bytes of one chunk's size with its extensions, and of the fields behind the last chunk."""

OVERHEAD: Final = 4
SLACK: Final = 64 * 1024
"""A body in chunks may take so many times its bytes, and so many bytes more. One byte a chunk takes six times."""

REST: Final = 64 * 1024
"""Bytes of a body that are still read after an early answer. The connection of a longer one is closed."""


class Wire(h11.Connection):
    """The server's side of one connection. `next_event` also raises RemoteProtocolError for input that costs too
    much."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, LARGEST_HEAD)
        self._chunked = False
        self._length = 0
        self._received = 0
        self._body = 0

    @property
    def fresh(self) -> bool:
        """No request has begun: what comes next is the first byte of one."""
        return self.their_state is h11.IDLE and self.our_state is h11.IDLE and not self.trailing_data[0]

    @property
    def plain(self) -> bool:
        """What comes next is the rest of a body whose length was said: it costs nothing to read."""
        return self.their_state is h11.SEND_BODY and not self._chunked

    @property
    def unread(self) -> bool:
        """The body of the request is not here whole."""
        return self.their_state is h11.SEND_BODY

    def receive_data(self, data: bytes) -> None:
        if self.unread:
            self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            self._check_head()
        event = super().next_event()
        if isinstance(event, h11.Request):
            fields = dict(event.headers)
            self._chunked = b"transfer-encoding" in fields
            self._length = int(fields.get(b"content-length", b"0"))
            self._received = self._body = 0
        elif isinstance(event, h11.Data):
            self._body += len(event.data)
        elif event is h11.NEED_DATA and self.unread and self._chunked:
            if len(self.trailing_data[0]) > FRAMING:
                raise h11.RemoteProtocolError(f"more than {FRAMING} bytes around one chunk")
            if self._received > OVERHEAD * self._body + SLACK:
                raise h11.RemoteProtocolError("chunks too small for the size of the body")
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        if isinstance(event, h11.Response) and self.unread and not self._short:
            # What follows would have to be read to its end before the next request.
            headers = [*event.headers, (b"connection", b"close")]
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        return super().send_with_data_passthrough(event)

    @property
    def _short(self) -> bool:
        # A client that waits for 100 may leave its body out.
        return not self._chunked and self._length <= REST and not self.they_are_waiting_for_100_continue

    def _check_head(self) -> None:
        data = self.trailing_data[0]
        if data.count(b"\n") <= LINES:
            return
        ends = [end for end in (data.find(b"\n\n"), data.find(b"\n\r\n")) if end >= 0]
        if data.count(b"\n", 0, min(ends) if ends else len(data)) > LINES:
            raise h11.RemoteProtocolError(f"more than {LINES} lines of headers", error_status_hint=431)
