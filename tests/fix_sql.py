"""One statement in a connection of its own."""

from typing import Any

import psycopg


def query(url: str, statement: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Run it, commit, and return its rows, if it has any."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
