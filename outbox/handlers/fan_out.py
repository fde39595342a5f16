"""Assigns events to the handlers of other processes, in a worker that has none of its own."""

import asyncio
from typing import Final

from idem.outbox.daemon.pass_times import PassTimes
from idem.outbox.daemon.retry import wait
from idem.outbox.database.pool import AWAY, REFUSED, Database
from idem.outbox.handlers import queue
from idem.outbox.observe import telemetry

INTERVAL: Final = 30.0
"""Seconds between two passes: a process that runs handlers assigns events as soon as it learns of one."""


async def keep_expanding(database: Database, stop: asyncio.Event, passes: PassTimes) -> None:
    """Give events to the handlers that others run, until `stop`: see `work.expand`."""
    expanding = passes.expect("expanding", INTERVAL)
    while not stop.is_set():
        try:
            async with database.connection() as connection:
                while not stop.is_set() and await queue.expand(connection):
                    pass
            expanding.made()
        except (*AWAY, *REFUSED):
            pass  # the loops that work with the database report its outage
        except Exception as error:
            telemetry.broken("handlers", error, "assigning events to handlers")
        await wait(stop, INTERVAL)
