"""Writes log lines, and limits their content: no bodies, no credentials, no idempotency keys."""

import asyncio
import functools
import hashlib
import logging
import sys
import threading
import traceback
from typing import TextIO

import psycopg
import structlog

from idem.outbox.observe.log_writer import Handed
from idem.outbox.values.errors import IdemError
from idem.outbox.values.terminal import coloured, printable

log: structlog.stdlib.BoundLogger = structlog.get_logger("idem")

_ours: tuple[type | None, int] = (None, logging.NOTSET)
"""What `set_up` has given structlog to filter by, and its level."""


def shows(level: int) -> bool:
    """Whether a line of this level is written. Asked before what a frequent line would say is put together.

    Always, where somebody else has configured structlog: their filter is not known here.
    """
    filters, lowest = _ours
    return level >= lowest or structlog.get_config()["wrapper_class"] is not filters


def set_up(*, json: bool, level: str = "info") -> None:
    """Configure structlog for a daemon: one line per event on standard error, JSON or console format."""
    global _ours
    # One line a call, with URL and address: the daemons have their own.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    lines = _Lines(sys.stderr)
    renderer: structlog.typing.Processor
    renderer = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=coloured(sys.stderr))
    )
    lowest = logging.getLevelNamesMapping()[level.upper()]
    _ours = (structlog.make_filtering_bound_logger(lowest), lowest)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if json else [_printable]),
            renderer,
        ],
        wrapper_class=_ours[0],
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


def _printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Runs before colours are added: a client's bytes must not act on the terminal of a reader of the log."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


def quietly() -> None:
    """For an application's process: lines go to the logger `idem` of the standard library.

    Where the application has configured structlog itself, its own configuration holds. A handler of the application's
    that waits for its reader never holds up an event loop: see `Handed`.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: _handed(),
        cache_logger_on_first_use=False,
    )


@functools.cache
def _handed() -> Handed:
    return Handed(logging.getLogger("idem"), _in_loop)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Lines:
    """Writes lines and never raises: a reader that has gone or a full disk must not undo the work that a line
    reports."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        try:
            with self._lock:
                self._file.write(line + "\n")
                self._file.flush()
        except (OSError, ValueError):  # closed, too
            pass

    debug = info = warning = error = critical = exception = write


def key_hash(key: str) -> str:
    """A key as logs show it: enough to find its lines, not enough to use or to read it."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def error_text(error: BaseException) -> str:
    """The loggable text of an exception.

    Never the text of a foreign one: it may quote what a provider or a client sent, keys and cards included. For an
    error of SQLAlchemy it is that of the database's own error, which it wraps.
    """
    error = getattr(error, "orig", None) or error
    kind = type(error).__name__
    match error:
        case IdemError():
            return f"{kind}: {error}"[:500]
        case psycopg.Error():
            said = error.diag.message_primary if (error.sqlstate or "22")[:2] != "22" else None
            return " ".join(word for word in (kind, error.sqlstate, said) if word)[:500]
    last = next(iter(traceback.extract_tb(error.__traceback__)[-1:]), None)
    return f"{kind} in {last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}" if last else kind
