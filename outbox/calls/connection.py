"""One connection to a provider, by TCP or TLS, that carries one call at a time.

That the first byte of a call left is a line here: `ProviderConnection.ask`. What comes before somebody has asked is
never an answer: such a connection is not used.
"""

import asyncio
import select
import socket
import ssl
from typing import Final

import h11
import httpx

from idem.outbox.calls.request_head import METHODS, Origin
from idem.outbox.values import clock

HEAD_BYTES: Final = 100 * 1024
"""Bytes of a head that is not complete yet."""
FULL: Final = 1 << 18
"""Bytes that wait for their reader, after which no more are taken from the socket."""

# What h11 must know of a request to read its answer. The request itself is not written by h11: its bytes are frozen.
_ASKED: Final = {method: h11.Request(method=method, target="/", headers=[("Host", "x")]) for method in METHODS}
_NO_MORE: Final = h11.EndOfMessage()


class ProviderConnection(asyncio.Protocol):
    """Made by `connect`. Belongs to one event loop."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.http = h11.Connection(h11.CLIENT, HEAD_BYTES)
        self.opened = clock.boottime()
        self.idle_until = 0.0
        """The boot time after which it is not used again; 0: it has carried no call yet."""
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._got = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._asked = self._over = self._late = self._paused = False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if not self._asked:
            self.close()
            return
        self._got += data
        if len(self._got) > FULL and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._error = exc
        self._wake()

    @property
    def ended(self) -> bool:
        """Whether it is known here that the connection is over."""
        return self._over

    @property
    def quiet(self) -> bool:
        """Whether the system has nothing of it to read either: no answer to nobody, no end. Asked now."""
        return not self._over and not self._poll.poll(0)

    def ask(self, method: str, wire: bytes, seconds: float) -> None:
        """Give a request to the socket, in one piece. From here on nothing proves that it was not sent.

        `seconds`: for the whole answer.
        """
        if self._asked or self._transport is None:
            raise RuntimeError("a connection that waits for an answer was asked twice")
        self.http.send(_ASKED[method])
        self.http.send(_NO_MORE)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(0.0, seconds), self._too_late)
        self._asked = True
        self._transport.write(wire)

    async def read(self, most: int) -> bytes:
        """What has come of the answer, at most so many bytes; b"" at its end.

        Raises OSError, and TimeoutError when the seconds of `ask` are over.
        """
        while not self._got:
            if self._late:
                raise TimeoutError
            if self._over:
                if self._error is not None:
                    raise self._error
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if len(self._got) <= most:
            got, self._got = bytes(self._got), bytearray()
        else:
            got = bytes(self._got[:most])
            del self._got[:most]
        if self._paused and self._transport is not None and not self._over:
            self._paused = False
            self._transport.resume_reading()
        return got

    def release(self) -> bool:
        """Whether the answer has been read to its end and another call may follow it here."""
        http = self.http
        if self._deadline is not None:
            self._deadline.cancel()
        unread = self._got or self._paused or http.trailing_data != (b"", False)
        if unread or self._over or self._late or self._transport is None or _holds_back(self._transport):
            return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        self._asked = False
        return True

    def close(self) -> None:
        """Close it at once."""
        self._over = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _too_late(self) -> None:
        self._late = True
        self._wake()


async def connect(where: Origin, address: str, tls: ssl.SSLContext, seconds: float) -> ProviderConnection:
    """A new connection to this address, with the TLS name of the origin; so many seconds for TCP, and as many for TLS.

    Raises httpx.ConnectError, whose cause says why, and httpx.ConnectTimeout.
    """
    loop = asyncio.get_running_loop()
    connection = ProviderConnection(where)
    secure = where.scheme == "https"
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named.
        line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            line.setblocking(False)
            async with asyncio.timeout(seconds):
                await loop.sock_connect(line, (address, where.port))
        except BaseException:
            line.close()
            raise
        # From here on the loop owns the socket, and closes it where this does not succeed.
        async with asyncio.timeout(seconds):
            await loop.create_connection(
                lambda: connection,
                sock=line,
                ssl=tls if secure else None,
                server_hostname=where.host if secure else None,
                ssl_handshake_timeout=seconds + 1 if secure else None,
            )
    except TimeoutError as error:
        raise httpx.ConnectTimeout("no connection in time") from error
    except OSError as error:
        raise httpx.ConnectError("no connection") from error
    return connection


def _holds_back(transport: asyncio.Transport) -> bool:
    """Whether bytes of the request have not left yet. Under TLS the transport below may hold them; where it cannot be
    asked, it may.
    """
    if transport.get_write_buffer_size():
        return True
    if transport.get_extra_info("ssl_object") is None:
        return False
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return below is None or bool(below.get_write_buffer_size())
