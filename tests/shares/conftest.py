"""A provider that a test holds back, and a session over a queue whose statistics stay as they are."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from shares.gate import gate  # noqa: F401


@pytest.fixture
def connection(db_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(db_url) as opened:
        opened.execute("ALTER TABLE idem.outbox SET (autovacuum_enabled = off)")
        opened.commit()
        yield opened
        opened.rollback()
