"""A desk, and roles that are no superuser: those that rows can be hidden from."""

import os
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest
from doctor.conftest import doctor, run  # noqa: F401

from idem.migrations import grants


def tables(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        query = "SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'p')"
        return sorted(row[0] for row in connection.execute(query))


def acting_as(url: str, role: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c role={role}')}"


@pytest.fixture
def role(db_url: str) -> Iterator[str]:
    """An ordinary role with a daemon's rights on this test's database."""
    name = f"idem_hidden_{os.getpid()}"
    run(db_url, f"CREATE ROLE {name} NOSUPERUSER", *grants.statements(name, "daemon"))
    yield name
    run(db_url, f"REASSIGN OWNED BY {name} TO CURRENT_USER", f"DROP OWNED BY {name}", f"DROP ROLE {name}")
