"""Writes log lines for a reader that may be slow, stuck or gone: a writer never waits, and unread lines are lost.

If the reader of a pipe stops, the pipe fills up and a write to it blocks. So a thread of its own writes from a bounded
queue, and idem counts the lost lines.
"""

import atexit
import contextlib
import contextvars
import io
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from idem.outbox.values.terminal import safe

WAITING = 1024 * 1024
"""Characters that may wait for a reader; what comes after them is lost."""

RECORDS = 10_000
"""Log records that may wait for the handlers of an application."""

LAST = 1.0
"""Seconds that lines which still wait have at the end of the process."""

PIECE = 4096
"""Bytes of one write: a pipe takes so many at once, unbroken by another writer's."""


class Lines(io.TextIOBase):
    """A text stream onto a descriptor, in the place of `sys.stderr`: `write` never waits and never raises.

    `lost` is called with each number of lines that are lost, at once; `back` with their sum, when the reader reads
    again.
    """

    def __init__(
        self,
        stream: TextIO,
        lost: Callable[[int], None] = lambda lines: None,
        back: Callable[[int], None] = lambda lines: None,
    ) -> None:
        self._descriptor = stream.fileno()
        self._terminal = stream.isatty()
        self._encoding = stream.encoding or "utf-8"
        self._lost = lost
        self._back = back
        self._waiting: deque[str] = deque()
        self._size = 0
        self._dropped = 0
        self._busy = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        atexit.register(self.drain, LAST)
        os.register_at_fork(after_in_child=self._forked)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def write(self, text: str) -> int:
        """Write this as soon as the reader accepts it. Raises TypeError for anything but text."""
        if not isinstance(text, str):
            raise TypeError(f"a text stream takes no {type(text).__name__}")
        text = safe(text)
        with self._change:
            full = self._size + len(text) > WAITING
            if not full:
                self._waiting.append(text)
                self._size += len(text)
                self._start()
                self._change.notify()
        if full:
            self._drop(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: the caller of flush must not wait for a reader."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        return self._descriptor

    def drain(self, seconds: float) -> None:
        """Wait until everything is written, at most so long."""
        with self._change:
            self._change.wait_for(lambda: not (self._waiting or self._busy), seconds)

    def _drop(self, text: str) -> None:
        lines = text.count("\n") or 1
        with self._change:
            self._dropped += lines
        self._lost(lines)

    def _forked(self) -> None:
        # The child has no thread, and its parent's may have held the lock; what waits is the parent's to write.
        self._change, self._thread, self._busy = threading.Condition(), None, False
        self._waiting.clear()
        self._size = 0

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log lines", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting)
                text = "".join(self._waiting)
                self._waiting.clear()
                self._size, self._busy = 0, True
            data = text.encode(self._encoding, "replace")
            try:
                self._put(data)
            except OSError:  # its reader is gone for good, or the disk is full, which may pass
                self._drop(text)
                continue
            with self._change:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._back(dropped)

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data[:PIECE]) :]


class Handed:
    """A logger for structlog in an application: its lines go to a logger of the standard library.

    From a thread that runs an event loop they are handed over to another one, because a handler of the application's
    may wait for a reader, and the loop is the application's too. From any other they are logged at once.
    """

    def __init__(self, logger: logging.Logger, in_loop: Callable[[], bool]) -> None:
        self._logger = logger
        self._in_loop = in_loop
        self._waiting: deque[tuple[contextvars.Context, logging.LogRecord]] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._dropped = 0
        atexit.register(self.drain, LAST)
        os.register_at_fork(after_in_child=self._forked)

    def drain(self, seconds: float) -> None:
        """Wait until the handlers have everything, at most so long."""
        with self._change:
            self._change.wait_for(lambda: not (self._waiting or self._busy), seconds)

    def _forked(self) -> None:
        # The child has no thread, and its parent's may have held the lock; what waits is the parent's to write.
        self._change, self._thread, self._busy = threading.Condition(), None, False
        self._waiting.clear()

    def _log(self, level: int, line: str) -> None:
        if not self._logger.isEnabledFor(level):
            return
        record = self._logger.makeRecord(self._logger.name, level, "", 0, line, (), None)
        if not self._in_loop():
            self._logger.handle(record)
            return
        with self._change:
            if len(self._waiting) >= RECORDS:
                self._dropped += 1
                return
            self._waiting.append((contextvars.copy_context(), record))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="idem log lines", daemon=True)
                self._thread.start()
            self._change.notify()

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting)
                context, record = self._waiting.popleft()
                dropped, self._dropped = self._dropped, 0
                self._busy = True
            with contextlib.suppress(Exception):  # a handler of theirs that fails must not end the lines after it
                context.run(self._logger.handle, record)
            if dropped:
                self._log(logging.WARNING, f"event='log_lines_lost' lines={dropped}")

    def debug(self, line: str, *_: Any) -> None:
        self._log(logging.DEBUG, line)

    def info(self, line: str, *_: Any) -> None:
        self._log(logging.INFO, line)

    def warning(self, line: str, *_: Any) -> None:
        self._log(logging.WARNING, line)

    warn = warning

    def error(self, line: str, *_: Any) -> None:
        self._log(logging.ERROR, line)

    exception = error

    def critical(self, line: str, *_: Any) -> None:
        self._log(logging.CRITICAL, line)

    fatal = critical
