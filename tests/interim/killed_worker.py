"""A worker of the shop as a process of its own, for a test that kills it."""

import asyncio

from fix_spine import catalogue
from interim.shop import acting

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.database.pool import Database
from idem.outbox.observe import telemetry
from idem.outbox.worker.worker import Worker


def run(database_url: str, bank_url: str) -> None:
    """Work until somebody kills this process."""
    telemetry.set_up(json=True, level="error")
    asyncio.run(_run(database_url, bank_url))


async def _run(database_url: str, bank_url: str) -> None:
    database = Database(database_url, name="idem-killed", size=3)
    await database.open()
    settings = WorkerSettings(lease=30, margin=1, slots=2, poll=0.05)
    await Worker(database, acting(catalogue(bank_url)), settings).run(asyncio.Event())
