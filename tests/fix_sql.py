"""A test's own connections: for one statement, for statements past the guards, and engines without a pool."""

from functools import cache
from typing import Any

import fix_kept
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool


def query(url: str, statement: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Run the statement, commit, and return its rows, if any."""
    with fix_kept.session(url) as connection:
        connection.autocommit = True
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description is not None else []


def forced(url: str, statement: Any, parameters: Any = None) -> None:
    """Run the statement past the triggers, which a superuser may do, and commit."""
    with fix_kept.session(url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(statement, parameters)


def driven(url: str, driver: str = "psycopg") -> str:
    """The same URL for SQLAlchemy."""
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


@cache
def engine_of(url: str, **options: Any) -> Engine:
    """An engine of SQLAlchemy without a pool. It asks a database for its features once, not in each test."""
    return create_engine(driven(url), poolclass=NullPool, **options)


def async_engine_of(url: str, driver: str = "psycopg", **options: Any) -> AsyncEngine:
    return create_async_engine(driven(url, driver), poolclass=NullPool, **options)
