"""One connection: HTTP/1.1 by h11 over a real socket, so that a test can cause every network fault."""

import asyncio
import socket
import struct
from dataclasses import replace
from http import HTTPStatus

import h11

from idem.testing.bank.answers import refusal
from idem.testing.bank.faults import AnswerFault
from idem.testing.bank.wire import Incoming, RequestHandler, WireReply

_CHUNK = 65_536
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_NO_HTTP = WireReply.of(refusal(400, "bad_request", "This is not HTTP."))
_TOO_LARGE = WireReply.of(refusal(413, "too_large", "Body too large."))


class BankConnection:
    """Serves one client until one side closes. `working` is true while a request runs; the server waits for it before
    it stops."""

    def __init__(
        self,
        handler: RequestHandler,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        idle_seconds: float,
        max_body: int,
    ) -> None:
        self.working = False
        self._handler = handler
        self._reader = reader
        self._writer = writer
        self._idle_seconds = idle_seconds
        self._max_body = max_body
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Serve one request after another.

        Raises:
            OSError: the client is gone.
        """
        while (incoming := await self._receive()) is not None:
            self.working = True
            reply = await self._handler.handle(incoming)
            if incoming.method == "HEAD":
                reply = replace(reply, body=b"")
            again = await self._deliver(reply)
            self.working = False
            if not again or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    def reset(self) -> None:
        """Close with RST: unsent and unread bytes are lost on both sides."""
        sock: socket.socket | None = self._writer.get_extra_info("socket")
        if sock is not None and not self._writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _receive(self) -> Incoming | None:
        """The next whole request; None if there is none."""
        request: h11.Request | None = None
        body = bytearray()
        begun = bool(self._http.trailing_data[0])
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                if begun:
                    await self._handler.cut(_incoming(request, body, complete=False))
                    await self._refuse(_NO_HTTP)
                return None
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                data = await self._read()
                begun = begun or bool(data)
                self._http.receive_data(data)
            elif isinstance(event, h11.Request):
                request, begun = event, True
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._max_body:
                    await self._handler.cut(_incoming(request, body, complete=False))
                    await self._refuse(_TOO_LARGE)
                    return None
            elif isinstance(event, h11.EndOfMessage):
                return _incoming(request, body, complete=True)
            else:
                return None

    async def _read(self) -> bytes:
        """Some bytes; none at the end of the input, or if the client was silent for too long."""
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await self._reader.read(_CHUNK)
        except (TimeoutError, ConnectionError):
            return b""

    async def _deliver(self, reply: WireReply) -> bool:
        """Deliver the answer, with its fault; False: the connection is over."""
        delivery, body = reply.delivery, reply.body
        # The server does not wait for a request whose fault is to stall or drip.
        self.working = delivery not in (AnswerFault.STALLED, AnswerFault.DRIPPED)
        if delivery is AnswerFault.STALLED:
            await self._wait_for_hang_up(reply.seconds)
        elif delivery is AnswerFault.RESET:
            self.reset()
        if not reply.answers:
            return False
        self._head(reply)
        if delivery is AnswerFault.CUT:
            body = body[: len(body) // 2]
        for piece in map(bytes, zip(body, strict=True)) if delivery is AnswerFault.DRIPPED else (body,):
            self._write(h11.Data(data=piece))
            await self._writer.drain()
            if delivery is AnswerFault.DRIPPED:
                await asyncio.sleep(reply.seconds or 0)
        if delivery is AnswerFault.CUT:
            return False
        self._write(h11.EndOfMessage())
        await reply.was_sent()
        return True

    async def _refuse(self, reply: WireReply) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._head(reply, close=True)
            self._write(h11.Data(data=reply.body), h11.EndOfMessage())
            await self._writer.drain()

    def _head(self, reply: WireReply, *, close: bool = False) -> None:
        headers = {**reply.headers, "content-length": str(len(reply.body))}
        if close:
            headers["connection"] = "close"
        self._write(
            h11.Response(
                status_code=reply.status, headers=list(headers.items()), reason=_REASONS.get(reply.status, b"")
            )
        )

    def _write(self, *events: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))

    async def _wait_for_hang_up(self, seconds: float | None) -> None:
        """Hold the answer back for these seconds, or until the client disconnects."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(_CHUNK):
                    pass
                if seconds is not None:
                    # The client has closed its sending half; it may still read.
                    await asyncio.sleep(seconds)
        except (TimeoutError, ConnectionError):
            pass


def _incoming(request: h11.Request | None, body: bytearray, *, complete: bool) -> Incoming:
    if request is None:
        return Incoming("", "", {}, bytes(body), complete)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    return Incoming(request.method.decode("ascii"), request.target.decode("latin-1"), headers, bytes(body), complete)
