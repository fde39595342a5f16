"""What an error of the database means to code that goes on: the server is away, or it refused one statement.

The two must never be mixed up. While the server is away the same batch is written again, as often as it takes. A
statement that the server refused (a row is locked, it took too long) would be refused again in the same way: the batch
is split, and only the row that it was about waits.
"""

from typing import Final

import psycopg
from psycopg import errors


class DatabaseAway(psycopg.OperationalError):
    """The connection is lost, cannot be made or is silent, or the server takes no writes now: nothing is known about
    what was under way, and every other statement would fail like this one."""


REFUSED: Final[tuple[type[Exception], ...]] = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.OutOfMemory,
)
"""What a server that works says of one statement: another transaction holds what it needs, it took too long, or the
server has no room for its locks or its memory now (53200).

The statement changed nothing. Statements about other rows may go through.
"""

AWAY_CLASSES: Final = ("08",)
AWAY_STATES: Final = frozenset(
    {
        "25006",  # read-only: a standby that the name pointed to before a fail-over, or a server that saves its disk
        "25P03",  # idle in a transaction for too long: the server has closed the connection
        "53000", "53100", "53300", "53400",  # no disk, no connection left
        "57P01", "57P02", "57P03", "57P04", "57P05",  # shutting down, crashed, starting, gone
    }
)  # fmt: skip
"""SQLSTATEs that speak of the server or of the connection, and not of a statement."""


WAIT_OVER: tuple[type[Exception], ...] = tuple(filter(None, (getattr(psycopg.errors, "_WaitTimeout", None),)))
"""What psycopg raises inside itself when the time of a wait is over; not every version has it."""


def away(error: BaseException, *, closed: bool = False) -> DatabaseAway | None:
    """The same error as `DatabaseAway`, if that is what it means; None: it is about the statement.

    `closed`: the connection is lost since.
    """
    if isinstance(error, DatabaseAway):
        return error
    # psycopg's own word for a wait that was to end by then, as for the next notification: nothing is lost.
    if not isinstance(error, psycopg.Error) or isinstance(error, WAIT_OVER):
        return None
    state = error.sqlstate
    if state is None:
        lost = closed or isinstance(error, psycopg.OperationalError)
    else:
        lost = closed or state in AWAY_STATES or state[:2] in AWAY_CLASSES
    if not lost:
        return None
    found = DatabaseAway(str(error).strip() or type(error).__name__)
    found.sqlstate = state
    return found
