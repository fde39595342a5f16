"""The caller's own connection or session of SQLAlchemy. This module is loaded once SQLAlchemy is."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, RootTransaction, TextClause, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from idem.application import driver_cursor
from idem.application.connections import ConnectionAdapter
from idem.outbox.database import checkout
from idem.outbox.database.caller_errors import said as said_by
from idem.outbox.database.caller_errors import sqlstate


def adapt(connection: object, *, begin: bool) -> ConnectionAdapter | None:
    """As `connections.adapt`; None: it is not of SQLAlchemy."""
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, Session):
        if not (begin or connection.in_transaction()):
            return _NotBegun()
        return SQLAlchemyAdapter(checkout.connection_of(connection))
    if not isinstance(connection, Connection):
        return None
    if begin and not connection.in_transaction():
        connection.begin()
    return SQLAlchemyAdapter(connection)


class _NotBegun:
    """A session that has not begun: nothing is asked of it."""

    database = ""

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        raise AssertionError("it has not begun")

    def in_transaction(self) -> bool:
        return False

    def ended(self) -> bool:
        return True

    def after_commit(self, what: Callable[[], None]) -> None:
        raise AssertionError("it has not begun")


class SQLAlchemyAdapter:
    """A SQLAlchemy connection, over psycopg or asyncpg."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._transaction = connection.get_transaction()
        self.ended = _end_of(self._transaction)

    @property
    def database(self) -> Engine:
        return self.connection.engine

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        try:
            if (form := driver_cursor.form_of(self.connection)) is not None:
                return driver_cursor.row(self.connection, form, statement, parameters)
            return self.connection.execute(_clause(statement), dict(parameters)).first()
        except DBAPIError as error:
            if (meant := said_by(sqlstate(error.orig), error, away=error.connection_invalidated)) is None:
                raise
            raise meant from error

    def in_transaction(self) -> bool:
        if self._transaction is None or not self._transaction.is_active:
            return False
        # In autocommit SQLAlchemy counts a transaction, and the database has none.
        return not getattr(self.connection.connection.dbapi_connection, "autocommit", False)

    def after_commit(self, what: Callable[[], None]) -> None:
        wanted = _after_commit.get(self.connection)
        if wanted is None:
            # One listener for each connection, however many accepts it has: SQLAlchemy forgets none.
            wanted = _after_commit[self.connection] = set()
            event.listen(self.connection, "commit", _doing(wanted))
        # One that is equal may be of a transaction that was rolled back.
        wanted.discard(what)
        wanted.add(what)


def _end_of(transaction: RootTransaction | None) -> Callable[[], bool]:
    # A hint that was never sent, because of a ROLLBACK, must keep no connection alive.
    seen = None if transaction is None else ref(transaction)

    def ended() -> bool:
        """Whether the transaction in which this object was made is over."""
        at = None if seen is None else seen()
        return at is None or not at.is_active

    return ended


_after_commit: Final[WeakKeyDictionary[Connection, set[Callable[[], None]]]] = WeakKeyDictionary()


def _doing(wanted: set[Callable[[], None]]) -> Callable[[Connection], None]:
    def committed(_: Connection) -> None:
        while wanted:
            wanted.pop()()

    return committed


@cache
def _clause(statement: str) -> TextClause:
    # To read a statement's parameters costs as much as to run it. There are a few statements.
    return text(statement)
