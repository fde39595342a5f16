"""The connections of clients: how many, for how long, and which of them has to go when there are too many.

A connection on which no request is under way is idle: one that is kept, one that has sent nothing, and one that sends
the head of a request by drops. Idle ones make room for new ones, the oldest first.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from idem.outbox.http_server import whole_requests
from idem.outbox.http_server.framing import Wire
from idem.outbox.http_server.slices import SLICE, STEP, Slices, has_blanks, is_light
from idem.outbox.http_server.transport import LingeringTransport
from idem.outbox.http_server.whole_requests import WholeCycle, WholeRequest
from idem.outbox.observe import telemetry

KEEP_ALIVE: Final = 75
"""Seconds for which an idle connection is kept: longer than load balancers keep theirs (60 s as a rule), because what
they send on a connection that is just being closed fails."""

HEAD_TIME: Final = 15.0
"""Seconds for a whole head, from its first byte on."""

STALLED: Final = 60.0
"""Seconds for which an answer may wait for a client that does not read it."""

AT_ONCE: Final = 64
"""Connections that are taken before anything else is done."""

TURN: Final = 0.01
PAUSE: Final = 0.2
"""Seconds until connections are taken again where none could be."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Connections:
    """The connections of one listening socket, at most `most` of them. `report` is called once when none can be
    accepted."""

    def __init__(self, most: int, report: Callable[[OSError], None]) -> None:
        self.most = most
        self._report = report
        self._reported = False
        self.slices = Slices()
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def accept(self, listening: socket.socket, make: Callable[[], Connection]) -> None:
        """Take connections until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            # Without an idle one to close, the next is left where it waits: in the kernel's queue.
            if len(self._open) >= self.most and not self._idle:
                await asyncio.sleep(PAUSE / 10)
                continue
            try:
                found, _ = await loop.sock_accept(listening)
                await self._begin(loop, found, make)
                for _ in range(min(AT_ONCE, self.most - len(self._open))):
                    found, _ = listening.accept()
                    await self._begin(loop, found, make)
                self._reported = False
            except BlockingIOError:
                self._reported = False
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    # A client that went away before it was taken; whatever else it is must not keep the loop busy.
                    await asyncio.sleep(TURN)
                    continue
                if not self._reported:
                    self._reported = True
                    self._report(error)
                # The descriptor of a connection that is closed is free a turn of the loop later.
                await asyncio.sleep(TURN if self._make_room() else PAUSE)

    async def _begin(
        self, loop: asyncio.AbstractEventLoop, found: socket.socket, make: Callable[[], Connection]
    ) -> None:
        while len(self._open) >= self.most and not self._make_room():  # noqa: ASYNC110
            await asyncio.sleep(PAUSE / 10)
        try:
            found.setblocking(False)
            # Else an answer in two parts waits for the client's acknowledgement of the first, which it delays.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(make, found)
        except OSError:
            found.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for the longest time; False: none is idle."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self.gone(oldest)
        oldest.transport.abort()
        return True

    def idle(self, connection: Connection) -> None:
        """No request is under way on it."""
        if connection.transport.lingers or not connection.transport.is_closing():
            self._open.add(connection)
            self._idle.pop(connection, None)
            self._idle[connection] = None

    def busy(self, connection: Connection) -> None:
        """A request is under way on it."""
        self._idle.pop(connection, None)

    def gone(self, connection: Connection) -> None:
        """It is closed."""
        self._idle.pop(connection, None)
        self._open.discard(connection)


class Connection(H11Protocol):
    """One connection. A client that has closed its sending side still gets the answer to a complete request."""

    transport: LingeringTransport  # type: ignore[assignment]
    conn: Wire

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.conn = Wire()
        self._all = connections
        self._waiting = bytearray()
        self._early = bytearray()
        self._refused = False
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()
        # A copy of it is the state of each request's scope.
        self.app_state = {**self.app_state, ENDED: self.ended}

    @property
    def quiet(self) -> bool:
        """No request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(LingeringTransport(transport, self._comes_more))  # type: ignore[arg-type]
        self._all.idle(self)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.gone(self)
        self.transport.lost()
        self._waiting.clear()
        self._early.clear()
        super().connection_lost(exc)
        for timer in (self._head, self._unread, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self.transport.lingers:
            self.transport.drop(len(data))
        elif not self.quiet and isinstance(self.cycle, WholeCycle):
            # Of the next request: its turn comes after this one.
            self._early += data
            self.flow.pause_reading()
        elif self._waiting:
            self._waiting += data
        elif self.conn.plain or is_light(data, head=self.quiet):
            self._parse(data)
        else:
            self._waiting += data
            self.transport.hold(True)
            self._all.slices.add(self)

    def parse_slice(self) -> bool:
        """Parse one slice of the waiting bytes; whether there is more."""
        size = len(self._waiting) if self.conn.plain else SLICE
        piece = bytes(self._waiting[:size])
        del self._waiting[:size]
        step = STEP if has_blanks(piece) and not self.conn.plain else SLICE
        while piece and not self.transport.is_closing():
            self._parse(piece[:step])
            piece = piece[step:]
        if self._waiting and not self.transport.is_closing():
            return True
        self._waiting.clear()
        self.transport.hold(False)
        return False

    def _parse(self, data: bytes) -> None:
        whole = whole_requests.read(data) if self.quiet and self.conn.fresh else None
        if whole is None:
            super().data_received(data)
        else:
            self._begin(whole)
        self._check()

    def _begin(self, request: WholeRequest) -> None:
        """Answer a request that is here whole, as uvicorn begins one of h11's."""
        self._unset_keepalive_if_required()
        common = {
            "type": "http", "asgi": {"version": self.asgi_version, "spec_version": "2.3"}, "http_version": "1.1",
            "server": self.server, "client": self.client, "scheme": self.scheme, "root_path": "",
            "state": self.app_state.copy(),
        }  # fmt: skip
        self.cycle = WholeCycle(
            request, scope=whole_requests.scope(request, common), conn=self.conn, transport=self.transport,
            flow=self.flow, logger=self.logger, access_logger=self.access_logger, access_log=self.access_log,
            default_headers=self.server_state.default_headers, message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )  # fmt: skip
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _comes_more(self) -> bool:
        return (self._refused or self.conn.unread) and not self.ended.is_set()

    def send_400_response(self, msg: str) -> None:
        """Refuse unreadable input; without an answer if one has already begun."""
        telemetry.refused_request("framing_invalid")
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        self._refused = True
        super().send_400_response(msg)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what it still answers goes nowhere
            self.cycle.message_event.set()
            self._all.idle(self)

    def on_response_complete(self) -> None:
        self._all.idle(self)
        super().on_response_complete()
        if self._early and not self.transport.is_closing():
            early, self._early = bytes(self._early), bytearray()
            self.data_received(early)
        self._check()
        if self.ended.is_set() and (self.quiet or self.conn.unread):
            self.transport.close()  # a second request that was cut short never comes

    def eof_received(self) -> bool:  # type: ignore[override]
        self.ended.set()
        # True: what is asked whole is answered, and the connection is closed then.
        return not self.quiet and not self.conn.unread and not self.transport.lingers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _check(self) -> None:
        """Exactly one clock runs on a quiet connection: for the rest of what has begun, or for the next to begin."""
        begun = self.quiet and (self.conn.unread or bool(self.conn.trailing_data[0]))
        if not self.quiet:
            self._all.busy(self)
        if self._head is not None and (not begun or self.transport.is_closing()):
            self._head.cancel()
            self._head = None
        if not self.quiet or self.transport.is_closing():
            return
        if begun and self._head is None:
            self._head = self.loop.call_later(HEAD_TIME, self.timeout_keep_alive_handler)
        elif not begun and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE, self.timeout_keep_alive_handler)


ENDED: Final = "client_ended"
"""In the state of a request's scope: an event that is set when the client has ended its side of the connection."""
