"""A connection's transport: its end lets the client read the last answer, and reading pauses for two reasons."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

READ: Final = 16 * 1024
"""Bytes of one read: what a connection brings in one turn, and what waits in memory until its turn."""

LINGER: Final = 30.0
"""Seconds for which the rest of a body is read and forgotten after the answer."""

FORGOTTEN: Final = 16 * 1024 * 1024
"""Bytes of it: a client that still writes then gets no answer."""


class LingeringTransport:
    """A transport for uvicorn. `unread` says whether the client is still to send the rest of a body.

    To close a socket that has unread bytes resets the connection, and the client loses the answer. So `close` ends
    this side only, and what still comes is dropped, unread by any parser, until the client closes too.
    """

    def __init__(self, transport: Any, unread: Callable[[], bool]) -> None:
        self._transport = transport
        self._unread = unread
        self._loop = asyncio.get_running_loop()
        self._paused = self._held = False
        self._dropped = 0
        self._end: asyncio.TimerHandle | None = None
        self.lingers = False
        if hasattr(transport, "max_size"):
            transport.max_size = READ

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Nothing more is answered."""
        return self.lingers or bool(self._transport.is_closing())

    def close(self) -> None:
        """Close this side; at once, or when the client has finished writing."""
        if self.is_closing():
            return
        if not self._unread():
            self._transport.close()
            return
        self.lingers = True
        self._transport.write_eof()
        self._end = self._loop.call_later(LINGER, self._transport.abort)
        self._apply()

    def drop(self, size: int) -> None:
        """So many bytes came after the end."""
        self._dropped += size
        if self._dropped > FORGOTTEN:
            self._transport.abort()

    def lost(self) -> None:
        """The connection has ended: no clock of it runs on."""
        if self._end is not None:
            self._end.cancel()

    def pause_reading(self) -> None:
        """Read no more: the application has enough."""
        self._paused = True
        self._apply()

    def resume_reading(self) -> None:
        """The application wants more."""
        self._paused = False
        self._apply()

    def hold(self, held: bool) -> None:
        """Whether the connection waits for its turn."""
        self._held = held
        self._apply()

    def _apply(self) -> None:
        if (self._paused or self._held) and not self.lingers:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
