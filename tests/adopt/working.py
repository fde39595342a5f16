"""What the daemons of a user's application do, stepped by hand, and a look at what is stored."""

from __future__ import annotations

import psycopg

from idem import Idem
from idem.outbox.database import Database
from idem.outbox.settings import WorkerSettings
from idem.outbox.worker import Worker


async def work(idem: Idem, url: str) -> None:
    """One pass of a worker that knows these operations."""
    database = Database(url, name="test", size=4)
    await database.open()
    worker = Worker(database, idem.catalogue(), WorkerSettings(lease=30, margin=1))
    try:
        await worker.run_once()
    finally:
        await worker.close()
        await database.close()


def count(url: str, table: str) -> int:
    """Committed rows of a table."""
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])
