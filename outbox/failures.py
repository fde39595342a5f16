"""What an error of the caller's own database connection means, whatever library it comes from."""

from __future__ import annotations

from typing import Final

from idem.outbox.errors import RetryTransaction, StoreUnavailable

SERIALIZATION_FAILURE: Final = "40001"
UNAVAILABLE: Final = frozenset({"55P03", "57P01", "57P02", "57P03"})
"""A lock that was not to be had; a server that ends, or does not take connections yet."""


def said(code: str | None, error: Exception, *, away: bool) -> Exception | None:
    """What an error of the database means to the caller; None where it means nothing of ours.

    `code` is its SQLSTATE, `away` whether the connection is lost.
    """
    if code == SERIALIZATION_FAILURE:
        return RetryTransaction("another transaction used this key first: run yours again, from its beginning")
    if away or code in UNAVAILABLE:
        return StoreUnavailable(f"the database could not decide; nothing was sent: {error}")
    return None


def sqlstate(error: object) -> str | None:
    """The SQLSTATE of an exception of psycopg or asyncpg."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
