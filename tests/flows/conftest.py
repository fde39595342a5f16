"""The flow of an order at the bank."""

import pytest
from fix_spine import Spine
from flows.local import ROWS, LocalFlows
from flows.order import THREE, Flows


@pytest.fixture
def flows(spine: Spine) -> Flows:
    made = Flows(spine)
    made.define(*THREE)
    return made


@pytest.fixture
async def shop(spine: Spine) -> LocalFlows:
    await spine.execute(ROWS)
    return LocalFlows(spine)
