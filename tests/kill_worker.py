"""A worker as a process of its own, for tests that kill it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fix_spine import catalogue

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon.daemon import stop_event
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.observe import telemetry
from idem.outbox.worker.worker import Worker


def patient(bank_url: str) -> Catalogue:
    """The catalogue with calls that no slow machine ends: a test in which nobody asks about what is unknown would wait
    for it in vain."""
    known = catalogue(bank_url)
    providers = {
        name: replace(each, contract=replace(each.contract, connect_timeout=20, deadline=20))  # type: ignore[type-var]
        for name, each in known.providers.items()
    }
    return replace(known, providers=providers)


def run(database_url: str, bank_url: str, make: Callable[[str], Catalogue] = catalogue) -> None:
    """Work until SIGTERM, or until somebody kills this process."""
    telemetry.set_up(json=True, level="error")
    asyncio.run(_run(database_url, make(bank_url)))


async def _run(database_url: str, known: Catalogue) -> None:
    database = Database(database_url, name="idem-killed", size=3)
    await database.open()
    worker = Worker(database, known, WorkerSettings(lease=30, margin=1, slots=2, poll=0.05))
    with stop_event() as stop:
        await worker.run(stop)
    await database.close()
