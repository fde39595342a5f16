"""A shop that pays through Stripe, for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fix_stripe import Shop, shop

from idem.outbox.database.pool import Database


@pytest.fixture
async def stripe_shop(database: Database, db_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    """Without events, until a test sends one by hand."""
    async with shop(database, db_url, tmp_path) as found:
        yield found
