"""The caller's own connection, in whatever library it is made: what a call needs of it, and nothing more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, TextClause, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from idem.application import driver_cursor
from idem.application.misuse import Misuse
from idem.outbox.database import checkout
from idem.outbox.database.caller_errors import said as said_by
from idem.outbox.database.caller_errors import sqlstate
from idem.outbox.values.sql_parameters import in_order


class ConnectionAdapter(Protocol):
    """An open connection of the caller. Statements have `:name` parameters and give one row with named columns."""

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """Raises RetryTransaction and StoreUnavailable for what they mean, and else what its library raises."""
        ...

    @property
    def database(self) -> object:
        """Which database this is: the same for all connections to one."""
        ...

    def in_transaction(self) -> bool: ...

    def ended(self) -> bool:
        """Whether the transaction in which this object was made is over."""
        ...

    def after_commit(self, what: Callable[[], None]) -> None:
        """Do this once this transaction has committed, where the library tells that. It may be done after a later one
        too, and must not hold the connection."""
        ...


def adapt(connection: object, *, begin: bool = False) -> ConnectionAdapter:
    """`begin`: what SQLAlchemy begins by itself begins here. Raises Misuse for a connection of no known library."""
    if isinstance(connection, scoped_session):
        connection = connection()
    if isinstance(connection, Session):
        if not (begin or connection.in_transaction()):
            return _NotBegun()
        return SQLAlchemyAdapter(checkout.connection_of(connection))
    if isinstance(connection, Connection):
        if begin and not connection.in_transaction():
            connection.begin()
        return SQLAlchemyAdapter(connection)
    if hasattr(getattr(connection, "info", None), "transaction_status") and not _asynchronous(connection):
        return PsycopgAdapter(connection)
    if hasattr(connection, "in_atomic_block"):
        return DjangoAdapter(connection)
    if hasattr(connection, "run_sync"):
        raise Misuse(
            f"{type(connection).__name__} is asynchronous, and this call is not: use `call_async` (or "
            "begin_async), and await it"
        )
    raise Misuse(
        f"{type(connection).__name__} is not a connection that idem knows: give a SQLAlchemy Connection, Session, "
        "AsyncConnection or AsyncSession, a psycopg Connection, or Django's `connection`"
    )


def _asynchronous(connection: Any) -> bool:
    return iscoroutinefunction(connection.commit)


class _NotBegun:
    """A session that has not begun: nothing is asked of it."""

    database: object = None

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

    @property
    def database(self) -> object:
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

    def ended(self) -> bool:
        return self._transaction is None or not self._transaction.is_active

    def after_commit(self, what: Callable[[], None]) -> None:
        wanted = _after_commit.get(self.connection)
        if wanted is None:
            # One listener for each connection, however many accepts it has: SQLAlchemy forgets none.
            wanted = _after_commit[self.connection] = set()
            event.listen(self.connection, "commit", _doing(wanted))
        wanted.add(what)


_after_commit: Final[WeakKeyDictionary[Connection, set[Callable[[], None]]]] = WeakKeyDictionary()


def _doing(wanted: set[Callable[[], None]]) -> Callable[[Connection], None]:
    def committed(_: Connection) -> None:
        while wanted:
            wanted.pop()()

    return committed


@dataclass(frozen=True)
class PsycopgAdapter:
    """A psycopg connection of the caller's own. Its own transaction status tells what is open."""

    connection: Any
    IDLE: ClassVar = 0
    GONE: ClassVar = 4

    @property
    def database(self) -> object:
        return self.connection.info.dsn

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        from psycopg.rows import tuple_row

        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return _fetched(cursor, statement, parameters)

    def in_transaction(self) -> bool:
        return int(self.connection.info.transaction_status) != self.IDLE or not self.connection.autocommit

    def ended(self) -> bool:
        return int(self.connection.info.transaction_status) in (self.IDLE, self.GONE)

    def after_commit(self, what: Callable[[], None]) -> None:
        """It does not tell of its commit."""


@dataclass(frozen=True)
class DjangoAdapter:
    """Django's `connection`."""

    connection: Any

    @property
    def database(self) -> object:
        return str(sorted((name, str(value)) for name, value in self.connection.get_connection_params().items()))

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        with self.connection.cursor() as cursor:
            return _fetched(cursor, statement, parameters)

    def in_transaction(self) -> bool:
        return bool(self.connection.in_atomic_block)

    def ended(self) -> bool:
        return not self.connection.in_atomic_block

    def after_commit(self, what: Callable[[], None]) -> None:
        self.connection.on_commit(what)


def _fetched(cursor: Any, statement: str, parameters: Mapping[str, Any]) -> Any:
    said, names = in_order(statement)
    try:
        cursor.execute(said, tuple([parameters[name] for name in names]))
        found = cursor.fetchone()
    except Exception as error:
        code = sqlstate(error) or sqlstate(error.__cause__)
        away = type(error).__name__ in ("OperationalError", "InterfaceError") and code is None
        if (meant := said_by(code, error, away=away)) is None:
            raise
        raise meant from error
    return None if found is None else driver_cursor.named(statement, cursor)(found)


@cache
def _clause(statement: str) -> TextClause:
    # To read a statement's parameters costs as much as to run it. There are a few statements.
    return text(statement)
