"""Standard output and error of a command that may be closed, full, in any encoding, or without a reader.

Output that cannot be read is lost, and the exit code stays what it was. The command fails only if the output could not
be stored (a full disk).
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from idem.cli.base import loading
from idem.outbox.values.terminal import safe

NO_READER = frozenset({errno.EPIPE, errno.EBADF, errno.ECONNRESET})
"""Errors of a stream without a reader: `idem run | head`, a closed shell."""


class Stream(io.TextIOBase):
    """Replaces `sys.stdout` or `sys.stderr`: never raises, and writes nothing after the first failure.

    `error` is that failure; None if there is none, or if the reader is gone.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._broken = stream is None
        self.error: OSError | None = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            # Replace characters that the encoding lacks: the command has done its work all the same.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write text without control characters. Raises TypeError if it is not text."""
        if not isinstance(text, str):
            raise TypeError(f"a text stream cannot write {type(text).__name__}")
        if not self._broken and self._stream is not None:
            with self._watched():
                self._stream.write(safe(text))
        return len(text)

    def flush(self) -> None:
        if not self._broken and self._stream is not None:
            with self._watched():
                self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation("it is closed")
        return self._stream.fileno()

    def end(self) -> None:
        """Flush. A failure must not become exit code 120, which the interpreter sets when its own flush fails."""
        self.flush()
        if self._broken and self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._broken = True
            self.error = None if error.errno in NO_READER else error
        except ValueError:  # it was closed
            self._broken = True


@contextlib.contextmanager
def guarded() -> Iterator[Stream]:
    """Replace both streams during the block, and keep descriptors 0 to 2 open, so that no socket gets one of them.

    Returns standard output; its `error` is set if the output could not be stored.
    """
    _take_numbers()
    before = sys.stdout, sys.stderr
    out, err = Stream(sys.stdout), Stream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before
        out.end()
        err.end()


def _take_numbers() -> None:
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)


@contextlib.contextmanager
def unblocked() -> Iterator[None]:
    """Replace both streams for a daemon: no write waits for its reader; unread lines are dropped and counted."""
    loading.without_rich("structlog")
    from idem.outbox.observe import daemon_events
    from idem.outbox.observe.log_writer import Lines

    before = sys.stdout, sys.stderr
    made: list[Lines] = []
    for name in ("stdout", "stderr"):
        with contextlib.suppress(OSError, ValueError):
            made.append(Lines(getattr(sys, name), daemon_events.lines_lost, daemon_events.lines_lost_until_now))
            setattr(sys, name, made[-1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for each in made:
            each.drain(LAST_LINES)


LAST_LINES = 1.0
"""How long a daemon waits at its end for its last lines to be read, in seconds."""
