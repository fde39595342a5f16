"""The caller's own connection, in whatever library it is made: what a call needs of it, and nothing more."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from idem.application import driver_cursor
from idem.application.misuse import Misuse
from idem.outbox.database.caller_errors import said as said_by
from idem.outbox.database.caller_errors import sqlstate
from idem.outbox.values.sql_parameters import in_order

if TYPE_CHECKING:
    from sqlalchemy import Engine


class ConnectionAdapter(Protocol):
    """An open connection of the caller. Statements have `:name` parameters and give one row with named columns."""

    def row(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """Raises RetryTransaction and StoreUnavailable for what they mean, and else what its library raises."""
        ...

    @property
    def database(self) -> "str | Engine":
        """Which database this is: the same for all connections to one; of SQLAlchemy its engine."""
        ...

    def in_transaction(self) -> bool: ...

    def ended(self) -> bool:
        """Whether the transaction in which this object was made is over."""
        ...

    def after_commit(self, what: Callable[[], None]) -> None:
        """Do this once this transaction has committed, where the library tells that."""
        ...


def adapt(connection: object, *, begin: bool = False) -> ConnectionAdapter:
    """`begin`: what SQLAlchemy begins by itself begins here. Raises Misuse for a connection of no known library."""
    # Who has none of its connections need not load it: a worker is smaller without it.
    if "sqlalchemy" in sys.modules:
        from idem.application import sqlalchemy_connections

        if (adapter := sqlalchemy_connections.adapt(connection, begin=begin)) is not None:
            return adapter
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


@dataclass(frozen=True)
class PsycopgAdapter:
    """A psycopg connection of the caller's own. Its own transaction status tells what is open."""

    connection: Any
    IDLE: ClassVar = 0
    GONE: ClassVar = 4

    @property
    def database(self) -> str:
        return str(self.connection.info.dsn)

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
    def database(self) -> str:
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
