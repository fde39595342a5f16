"""A caller as a process of its own, driven over a pipe step by step, for tests that kill or stop it."""

import asyncio
from multiprocessing.connection import Connection

from inline.buying import buying, pay, prepared

from idem.outbox.database.pool import Database
from idem.outbox.inline import InlineRun, InlineRuns
from idem.outbox.observe import telemetry


def run(pipe: Connection, database_url: str, bank_url: str, provider: str, lease: float) -> None:
    """Begin, then obey: `pay` makes the call whatever is left, `check` tells what is left, `complete` reports."""
    telemetry.set_up(json=True, level="error")
    asyncio.run(_run(pipe, database_url, bank_url, provider, lease))


async def _run(pipe: Connection, database_url: str, bank_url: str, provider: str, lease: float) -> None:
    known = buying(bank_url, lease=lease)
    database = Database(database_url, name="idem-caller", size=3)
    await database.open()
    runs = InlineRuns(database, known)
    begun = await runs.begin(prepared(known, database_url, f"buy.{provider}", "k1"))
    assert isinstance(begun, InlineRun), begun
    pipe.send(begun.attempt)
    outcome = None
    while (order := await asyncio.to_thread(pipe.recv)) != "end":
        match order:
            case "check":
                pipe.send((begun.remaining, begun.lost))
            case "pay":
                outcome = await pay(known, provider, begun.provider_key)
                pipe.send(outcome.reference)
            case "complete":
                assert outcome is not None
                pipe.send(await begun.complete(outcome))
    await runs.close()
    await database.close()
