"""A connection out of the caller's own engine, taken behind the breaker of that engine."""

import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from idem.outbox.database.caller_errors import UNAVAILABLE, sqlstate
from idem.outbox.database.outage import Outage
from idem.outbox.values.errors import StoreUnavailable

_outages: Final[WeakKeyDictionary[Engine, Outage]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def outage_of(engine: Engine) -> Outage:
    """The breaker of an engine in this process."""
    with _lock:
        return _outages.setdefault(engine, Outage())


def connection_of(session: Session) -> Connection:
    """The connection of a session; where it has none yet, its engine gives one now.

    Raises StoreUnavailable where the database cannot be reached; at once, while another request of this process is
    finding out whether it is back.
    """
    bind = session.get_bind()
    return checked_out(bind, session.connection) if isinstance(bind, Engine) else session.connection()


def checked_out(engine: Engine, connect: Callable[[], Connection]) -> Connection:
    """What `connect` takes out of this engine. Raises StoreUnavailable."""
    try:
        with outage_of(engine).asking(lambda error: _unreachable(error) or None):
            return connect()
    except (DBAPIError, OSError) as error:
        if not _unreachable(error):
            raise
        raise StoreUnavailable(f"the database cannot be reached; nothing was sent: {error}") from error


def _unreachable(error: Exception) -> bool:
    if isinstance(error, OSError):
        return True  # asyncpg's own, which SQLAlchemy hands on
    if not isinstance(error, DBAPIError):
        return False
    code = sqlstate(error.orig)
    if code is not None:
        return code in UNAVAILABLE or code.startswith("08")
    return type(error).__name__ in ("OperationalError", "InterfaceError")
