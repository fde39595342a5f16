"""An empty database, as a reader has one."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from fix_database import on


@pytest.fixture
def new_database(server: str) -> Iterator[str]:
    """The URL of an empty database."""
    name = f"idem_tutorial_{uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield on(server, name)
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
