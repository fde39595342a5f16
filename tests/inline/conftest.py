"""A shop whose own code calls the bank."""

from collections.abc import AsyncIterator

import pytest
from fix_spine import Spine
from inline import buying


@pytest.fixture
async def shop(spine: Spine) -> AsyncIterator[buying.Shop]:
    made = buying.shop(spine)
    async with made.runs:
        yield made
