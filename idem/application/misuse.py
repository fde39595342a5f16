"""Mistakes in the code that uses idem: loud, at the first request, with what to write instead."""

from idem.outbox.values.errors import IdemError


class Misuse(IdemError):
    """The application uses idem in a way that would break a promise. The text says what to write instead."""


class NoTransaction(Misuse):
    """`reserve` or `accept` outside a transaction: it would commit before the caller's own rows are written."""

    def __init__(self, word: str = "reserve") -> None:
        shared = "your own writes and submit() share" if word == "reserve" else "your own writes share"
        super().__init__(
            f"{word}() needs an open transaction, which {shared}: call it inside "
            "`with db.begin():` (`async with db.begin():`, Django's `with transaction.atomic():`), and not on a "
            "connection in autocommit"
        )


class InTransaction(Misuse):
    """An inline call inside an open transaction: what it commits could not be undone with that."""

    def __init__(self) -> None:
        super().__init__(
            "an inline call cannot begin inside an open transaction: its row is committed before your code makes the "
            "call, so your rows would not stand or fall with it. Commit first, make the call, then write its result "
            "(or let a worker make the call: provider=, reserve() and submit())"
        )


class NotCommitted(Misuse):
    """`answer` before the commit: the client could get an answer that is never stored."""

    def __init__(self) -> None:
        super().__init__(
            "answer() was called before the transaction of reserve() was committed, so the client could get an "
            "answer that is never stored. Commit first: leave `with db.begin():`, then answer(). A dependency that "
            "commits after the endpoint has returned (a `yield` dependency that begins the transaction, Django's "
            "ATOMIC_REQUESTS) cannot be used here: have it give the session, and begin in the endpoint"
        )


class NotStored(Misuse):
    """`answer` after a rollback: nothing is stored, and nothing may be promised."""

    def __init__(self) -> None:
        super().__init__(
            "answer() was called, but what reserve() wrote is not in the database: its transaction, or the savepoint "
            "around it, was rolled back. Let the exception pass, or leave out answer(): nothing happened, and the "
            "client may send the same request again"
        )


class OutOfOrder(Misuse):
    """A call's methods in an order that means nothing."""
