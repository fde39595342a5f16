"""Translates errors of the caller's own database connection, from any library."""

from typing import Final

from idem.outbox.values.errors import AcceptPaused, RetryTransaction, StoreUnavailable

SERIALIZATION_FAILURE: Final = "40001"
UNAVAILABLE: Final = frozenset(
    {
        "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "25006", "25P03", "25P04",
        "53000", "53100", "53200", "53300",
    }
)  # fmt: skip
"""A lock that was not to be had; a statement or a transaction that ran out of its session's time; a server that ends or
does not take connections yet, that takes no writes (a standby, `default_transaction_read_only`), or that has no memory,
disk or connections left."""
NO_ROOM: Final = "53200"
ROOM_FOR_LOCKS: Final = (
    "the database server has no lock slots or no memory left (SQLSTATE 53200). Each new key holds one lock until its "
    "transaction ends, in a table that all sessions of the server share: let a transaction accept at most 1000 rows "
    "and commit, or raise max_locks_per_transaction in postgresql.conf and restart the server"
)
PAUSED: Final = "ID503"
"""idem's own (`idem.refuse_paused`): the provider's accept is paused, or the calls of an inline operation."""


def said(code: str | None, error: BaseException, *, away: bool) -> Exception | None:
    """The error of idem that a database error means; None if it does not concern idem.

    `code` is its SQLSTATE, `away` whether the connection is lost.
    """
    if code == SERIALIZATION_FAILURE:
        return RetryTransaction("another transaction used this key first: run your transaction again from the start")
    if code == PAUSED:
        return AcceptPaused(f"{_message(error)}. Send the same request with the same key again later")
    if code == NO_ROOM:
        return StoreUnavailable(f"{ROOM_FOR_LOCKS}. Nothing was sent. The server says: {_message(error)}")
    if away or code in UNAVAILABLE:
        return StoreUnavailable(f"the database could not complete the request; nothing was sent: {error}")
    return None


def paused(error: BaseException) -> AcceptPaused | None:
    """The error of idem that a refused accept over psycopg means; None for any other error."""
    found = said(PAUSED, error, away=False) if sqlstate(error) == PAUSED else None
    return found if isinstance(found, AcceptPaused) else None


def _message(error: BaseException | None) -> str:
    """What the database said, without the lines that a driver puts around it."""
    while error is not None:
        found = getattr(getattr(error, "diag", None), "message_primary", None) or getattr(error, "message", None)
        if found:
            return str(found)
        error = getattr(error, "orig", None) or error.__cause__
    return "it is paused"


def sqlstate(error: object) -> str | None:
    """The SQLSTATE of an exception of psycopg or asyncpg."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
