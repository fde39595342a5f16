"""Operations that want an approval, on the spine: of what is above 1000, of everything, and of another person."""

from collections.abc import Iterator

import pytest
from approval.waiting import Waiting
from fix_spine import Spine
from producers.application import Application, synced


@pytest.fixture
def waiting(spine: Spine) -> Waiting:
    """The whole path, whose operations want approvals."""
    return Waiting(spine)


@pytest.fixture
def application(waiting: Waiting) -> Iterator[Application]:
    """The same, accepted by SQL."""
    synced(waiting.spine.url, waiting.spine.catalogue)
    yield Application(waiting.spine.url)
