"""Standard output and error of a command: closed, full, in any encoding, or with a reader that does not read.

What nobody can read is lost, and the command ends with the exit code that it has earned. Only where the output itself
could not be kept (a full disk) has it failed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from idem.outbox.values.terminal import safe

NOBODY = frozenset({errno.EPIPE, errno.EBADF, errno.ECONNRESET})
"""Errors of a stream that nobody reads: `idem run | head`, a shell that has closed it."""


class Stream(io.TextIOBase):
    """In the place of `sys.stdout` or `sys.stderr`: never raises, and says no more after the first failure.

    `error` is that failure, None while there is none or where nobody reads.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._broken = stream is None
        self.error: OSError | None = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            # What the encoding lacks is replaced: a command that cannot say a letter has done its work all the same.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write, without what acts on a terminal. Raises TypeError for what is no text."""
        if not isinstance(text, str):
            raise TypeError(f"a text stream takes no {type(text).__name__}")
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
        """Flush; what cannot be written must not become the exit code 120 of an interpreter that tries again."""
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
            self.error = None if error.errno in NOBODY else error
        except ValueError:  # it was closed
            self._broken = True


@contextlib.contextmanager
def guarded() -> Iterator[Stream]:
    """Both streams for the length of the block, and the numbers 0 to 2 taken, so that no socket becomes one of them.

    Gives standard output, whose `error` says whether it was kept.
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
    """Both streams for a daemon: no write waits for its reader, lines that nobody takes are lost and counted."""
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
"""Seconds that the lines of a daemon have at its end."""
