"""A database whose operations are known to SQL, and an application of its own that accepts by SQL alone."""

from collections.abc import Iterator

import pytest
from fix_database import clone
from fix_spine import Spine
from producers.application import Application, synced


@pytest.fixture(scope="session")
def functions_url(server: str, template: str) -> Iterator[str]:
    """One database for all tests of functions that write nothing."""
    with clone(server, template) as url:
        yield url


@pytest.fixture
def application(spine: Spine) -> Application:
    """The whole path, with the operations of the spine synced; accepts by SQL."""
    synced(spine.url, spine.catalogue)
    return Application(spine.url)
