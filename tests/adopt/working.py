"""What the daemons of a user's application do, stepped by hand, and a look at what is stored."""

from fix_database import connected
from fix_sql import query
from fix_waiting import stopping

from idem import Idem
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.worker.worker import Worker
from idem.sweeper.daemon import Sweeper


async def work(idem: Idem, url: str) -> None:
    """One pass of a worker that knows these operations."""
    settings = WorkerSettings(lease=30, margin=1)
    async with connected(url) as database, stopping(Worker(database, idem.catalogue(), settings)) as worker:
        await worker.run_once()


async def rest(idem: Idem, url: str) -> None:
    """What is queued has become too old to be sent, and a sweeper has seen it."""
    query(url, "UPDATE idem.outbox SET start_before = now()")
    async with connected(url) as database:
        await Sweeper(database, idem.accepting()).run_once()


def states(url: str) -> list[tuple[str, str]]:
    """The state of each key, and the status of its row."""
    return query(url, "SELECT k.state, o.status FROM idem.idempotency_keys k JOIN idem.outbox o USING (intent_id)")


def count(url: str, table: str) -> int:
    """Committed rows of a table."""
    return int(query(url, f"SELECT count(*) FROM {table}")[0][0])
