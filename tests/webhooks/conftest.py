"""A running endpoint over the operator's desk."""

from collections.abc import AsyncIterator

import pytest
from fix_desk import Desk
from fix_webhooks import Hooks, hooking
from webhooks.unmatched import changed  # noqa: F401


@pytest.fixture
async def hooks(desk: Desk) -> AsyncIterator[Hooks]:
    """Signed events, sent to a real port."""
    async with hooking(desk) as found:
        yield found
