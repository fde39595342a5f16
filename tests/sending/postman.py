"""A worker as a process of its own, whose send hangs when it has sent: for tests that end the process."""

import asyncio
import time
from pathlib import Path

from sending.box import Box, idem_of

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon.daemon import stop_event
from idem.outbox.database.pool import Database
from idem.outbox.observe import telemetry
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

LEASE = 4.0


def run(database_url: str, home: str) -> None:
    """Work until SIGTERM, or until somebody kills this process."""
    telemetry.set_up(json=True, level="error")
    box = Box(Path(home, "spool"))

    def send(request: SendRequest, call: Sending) -> Succeeded:
        told = box.post(request, call)
        time.sleep(120)
        return told

    async def work() -> None:
        database = Database(database_url, name="idem-postman", size=3)
        await database.open()
        idem = idem_of(Path(home, "postman.toml"), send)
        settings = WorkerSettings(lease=LEASE, margin=0.5, slots=2, poll=0.05)
        with stop_event() as stop:
            await Worker(database, idem.catalogue(), settings).run(stop)
        await database.close()

    asyncio.run(work())
