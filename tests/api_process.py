"""The HTTP API as a process of its own, over the spine's operations: started by the tests that need more than one."""

import asyncio
import contextlib
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe

from fix_api import running
from fix_forking import started
from fix_spine import catalogue

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.daemon.daemon import stop_event


def run(url: str, bank: str, ready: Connection) -> None:
    """One process until SIGTERM; says its address through the pipe."""

    async def main() -> None:
        with stop_event() as stop:
            async with running(url, catalogue(bank), ApiSettings(wait_cap=300)) as (api, address):
                ready.send(address)
                await stop.wait()
                api.drain()

    asyncio.run(main())


@contextlib.contextmanager
def apis(url: str, bank: str, number: int) -> Iterator[list[str]]:
    """So many processes; their addresses."""
    made = []
    try:
        for _ in range(number):
            ours, theirs = Pipe(duplex=False)
            made.append((started(run, url, bank, theirs), ours))
        yield [pipe.recv() for _, pipe in made]
    finally:
        for process, _ in made:
            process.terminate()
        for process, _ in made:
            process.join(90)
            process.kill()
