"""A database whose operations are known to SQL, and an application of its own that accepts by SQL alone."""

import os
from collections.abc import Iterator

import psycopg
import pytest
from fix_database import on
from fix_spine import Spine
from producers.application import Application, synced


@pytest.fixture(scope="session")
def functions_url(server: str, template: str) -> Iterator[str]:
    """One database for all tests of functions that write nothing."""
    name = f"idem_functions_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield on(server, name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def application(spine: Spine) -> Application:
    """The whole path, with the operations of the spine synced; accepts by SQL."""
    synced(spine.url, spine.catalogue)
    return Application(spine.url)
