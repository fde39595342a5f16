"""An empty database, as a reader has one."""

from collections.abc import Iterator

import pytest
from schema import databases


@pytest.fixture
def new_database(server: str) -> Iterator[str]:
    """The URL of an empty database."""
    with databases.new_database(server) as url:
        yield url
