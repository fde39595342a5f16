"""Fixtures of a user's application: their tables in this test's own database, their idem.toml, a bank for a ledger."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from adopt.proof_server import Street
from adopt.shop import ORDER, TABLES

from idem.testing.bank import Bank, BankAccount, BankSettings


@pytest.fixture
def shop_url(db_url: str) -> Iterator[str]:
    """A database with the shop's tables and one order, beside idem's."""
    with psycopg.connect(db_url, autocommit=True) as own:
        own.execute(TABLES)
        own.execute("INSERT INTO orders VALUES (%s, 4200)", [ORDER])
    yield db_url


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    """A ledger that behaves until it is told otherwise."""
    settings = BankSettings(log=tmp_path / "bank.jsonl", durable=False, accounts=(BankAccount("main", "secret"),))
    async with Bank(settings) as bank:
        yield bank


@pytest.fixture(scope="module")
def street() -> Iterator[Street]:
    with Street() as street:
        yield street
