"""A schema that an ordinary role owns, with a role for the daemons and one for a producer."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from fix_sql import query
from schema import backlog, revisions
from schema.databases import ENVIRONMENT, Installed, as_role, new_database

from idem.migrations import runner
from idem.testing.databases import HERE


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """A database with nothing in it."""
    with new_database(server) as url:
        yield url


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The product's revisions and the next one, `tests/schema/next`, for an upgrade to be pointed at."""
    return revisions.with_another(tmp_path / "scripts", "next")


@pytest.fixture(scope="session")
def roles(server: str) -> Iterator[tuple[str, str, str]]:
    """Three ordinary roles: owner, daemon, producer."""
    # Another folder that imports this fixture has roles of its own.
    names = tuple(f"idem_{kind}_{uuid4().hex[:12]}" for kind in ("owner", "daemon", "producer"))
    with psycopg.connect(server, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE ROLE {name} NOSUPERUSER NOCREATEDB NOCREATEROLE")
        yield names  # type: ignore[misc]
        for name in names:
            admin.execute(f"DROP ROLE {name}")


@pytest.fixture(scope="session")
def installed_once(server: str, roles: tuple[str, str, str]) -> Iterator[Installed]:
    """The schema as an ordinary role installs it; a template that nobody connects to."""
    owner, daemon, producer = roles
    with new_database(server, owner=owner) as url:
        runner.upgrade(as_role(url, owner), environment=ENVIRONMENT)
        runner.grant(as_role(url, owner), daemon, "daemon")
        runner.grant(as_role(url, owner), producer, "producer")
        yield Installed(url, owner, daemon, producer)


@pytest.fixture(scope="session")
def pristine(server: str, installed_once: Installed) -> Iterator[Installed]:
    """A copy whose tables stay empty: tests work in transactions that are rolled back."""
    with new_database(server, template=urlsplit(installed_once.superuser_url).path[1:]) as url:
        yield replace(installed_once, superuser_url=url)


@pytest.fixture
def installed(server: str, installed_once: Installed) -> Iterator[Installed]:
    """A copy of this test's own, to commit in."""
    with new_database(server, template=urlsplit(installed_once.superuser_url).path[1:]) as url:
        query(url, HERE)
        yield replace(installed_once, superuser_url=url)


@pytest.fixture(scope="session")
def loaded(server: str, installed_once: Installed) -> Iterator[str]:
    """The backlog of 100,000 rows; a template that nobody connects to, or that tests roll back in."""
    with new_database(server, template=urlsplit(installed_once.superuser_url).path[1:]) as url:
        backlog.load(url)
        yield url


@pytest.fixture
def rolled_back(pristine: Installed) -> Iterator[psycopg.Connection[Any]]:
    """A superuser's open transaction on the empty schema."""
    with psycopg.connect(pristine.superuser_url) as connection:
        yield connection
        connection.rollback()
