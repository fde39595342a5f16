"""What the daemons of a user's application do, stepped by hand, and a look at what is stored."""

import psycopg
from fix_sql import query

from idem import Idem
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.worker.worker import Worker
from idem.sweeper.daemon import Sweeper


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


async def rest(idem: Idem, url: str) -> None:
    """What is queued has become too old to be sent, and a sweeper has seen it."""
    query(url, "UPDATE idem.outbox SET start_before = now()")
    database = Database(url, name="test", size=4)
    await database.open()
    try:
        await Sweeper(database, idem.accepting()).run_once()
    finally:
        await database.close()


def states(url: str) -> list[tuple[str, str]]:
    """The state of each key, and the status of its row."""
    return query(url, "SELECT k.state, o.status FROM idem.idempotency_keys k JOIN idem.outbox o USING (intent_id)")


def count(url: str, table: str) -> int:
    """Committed rows of a table."""
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])
