"""idem's statements on a cursor of the driver, in the caller's transaction: what SQLAlchemy adds costs more than they.

SQLAlchemy's own way is taken where it has something to do: somebody listens to its statements or logs them, the
transaction is not one that takes statements, or the driver is another one. What a statement raises it handles itself,
so a lost connection is invalidated, and errors are its own.
"""

from __future__ import annotations

import logging
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy import Connection

from idem.outbox.values.sql_parameters import in_order, numbered

HEARD: Final = ("before_execute", "after_execute", "before_cursor_execute", "after_cursor_execute")

FORMS: Final = {"psycopg": in_order, "asyncpg": numbered}
"""How each driver below SQLAlchemy has its parameters."""


def form_of(connection: Connection) -> Callable[[str], tuple[str, tuple[str, ...]]] | None:
    """How the driver below takes a statement; None: SQLAlchemy has to run it."""
    transaction, nested = connection.get_transaction(), connection.get_nested_transaction()
    if transaction is None or not transaction.is_active or not (nested is None or nested.is_active):
        return None  # it says what is wrong
    block = getattr(connection, "_trans_context_manager", None)
    if block is not None and not getattr(block, "is_active", False):
        return None
    events = connection.dispatch
    if any(getattr(events, name) for name in HEARD) or getattr(connection.dialect, "_has_events", True):
        return None
    if connection.engine.logger.isEnabledFor(logging.INFO) or not hasattr(connection, "_handle_dbapi_exception"):
        return None
    return FORMS.get(connection.dialect.driver)


def row(
    connection: Connection,
    form: Callable[[str], tuple[str, tuple[str, ...]]],
    statement: str,
    parameters: Mapping[str, Any],
) -> Any:
    """One row of a statement, its columns by name; None: there is none. Raises what SQLAlchemy raises."""
    cursor = connection.connection.cursor()
    said, names = form(statement)
    values = tuple([parameters[name] for name in names])
    try:
        cursor.execute(said, values)
        found = cursor.fetchone()
        made = None if found is None else named(statement, cursor)(found)
    except BaseException as error:
        # A connection that was cut off in the middle of a statement must not be used again: it is closed there.
        known = isinstance(error, connection.dialect.loaded_dbapi.Error)
        connection._handle_dbapi_exception(error, said if known else None, values, cursor, None)
    cursor.close()
    return made


_named: dict[str, Callable[..., Any]] = {}


def named(statement: str, cursor: Any) -> Callable[..., Any]:
    """What makes a row of this statement, of its values in order. There are a few statements, each with its columns."""
    made = _named.get(statement)
    if made is None:
        columns = [column[0] for column in cursor.description]
        kind: Any = namedtuple("Row", columns)  # type: ignore[misc]
        made = _named[statement] = kind._make
    return made
