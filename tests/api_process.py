"""The HTTP API as a process of its own, over the spine's operations: started by the tests that need more than one."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

from fix_api import running
from fix_spine import catalogue

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.daemon.daemon import stop_event

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["api_process"])


def run(url: str, bank: str, started: Connection) -> None:
    """One process until SIGTERM; says its address through the pipe."""

    async def main() -> None:
        with stop_event() as stop:
            async with running(url, catalogue(bank), ApiSettings(wait_cap=300)) as (api, address):
                started.send(address)
                await stop.wait()
                api.drain()

    asyncio.run(main())


@contextlib.contextmanager
def apis(url: str, bank: str, number: int) -> Iterator[list[str]]:
    """So many processes; their addresses."""
    made = []
    try:
        for _ in range(number):
            ours, theirs = processes.Pipe(duplex=False)
            process = processes.Process(target=run, args=(url, bank, theirs))
            process.start()
            made.append((process, ours))
        yield [pipe.recv() for _, pipe in made]
    finally:
        for process, _ in made:
            process.terminate()
        for process, _ in made:
            process.join(90)
            process.kill()
