"""Sessions of roles."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from schema.databases import Installed

Connection = psycopg.Connection[Any]


@contextmanager
def session(installed: Installed, role: str) -> Iterator[Connection]:
    """A session that has logged in as this role, for all that the database can tell."""
    with psycopg.connect(installed.superuser_url) as connection:
        connection.execute(f"SET SESSION AUTHORIZATION {role}")
        connection.commit()
        yield connection
        connection.rollback()
