"""What the drivers of Python peers share: the protocol of `idem.cli.bench.job`, and how each workload is measured.

It runs in the peer's own environment, so it imports the standard library, uvloop and aiohttp alone. An order is one
line of JSON: `work`, `url`, `count`, `connections`, `slots`, `origin`.

`install` makes the schema and says the version. `enqueue` puts `count` jobs into the queue, one a transaction, over so
many connections. `drain` works off `count` jobs that do nothing, `http` the same with a POST each, and `latency` says
how long one job at a time takes from the commit of its enqueue to the start of its handler.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import uvloop

WARM = 50
INTERVAL = 0.02
POLL = 0.005


class Run:
    """One workload: its handler calls `called`, which counts and keeps when the first and each job began."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.count = int(order["count"])
        self.calls = 0
        self.began: dict[int, float] = {}
        self.first: tuple[float, float] | None = None
        self.all_called = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.session: Any = None

    async def called(self, number: int) -> None:
        """What every handler does."""
        if self.first is None:
            self.first = time.monotonic(), time.process_time()
        if self.order["work"] == "latency":
            self.began[number] = time.time()
        if self.order["work"] == "http":
            if self.session is None:  # of the loop that the handlers run in, which may not be ours
                import aiohttp

                self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self.order["slots"]))
            body = {"amount": 100 + number % 900, "currency": "eur", "order": f"order-{number}"}
            headers = {"Idempotency-Key": f"job-{number}"}
            async with self.session.post(self.order["origin"] + "/payments", json=body, headers=headers) as answer:
                if answer.status != 201:
                    raise RuntimeError(f"status {answer.status}")
                await answer.json()
        self.calls += 1
        if self.calls >= self.count:
            self.loop.call_soon_threadsafe(self.all_called.set)


class Peer:
    """One peer. A subclass says how it does each of these."""

    version = ""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.url: str = order["url"]
        self.run = Run(order)

    async def install(self) -> None:
        """Make the schema."""
        raise NotImplementedError

    async def open(self, connections: int) -> None:
        """Open so many connections for `enqueue`."""
        raise NotImplementedError

    async def enqueue(self, lane: int, number: int) -> None:
        """Put one job into the queue, in a transaction of its own, on connection `lane`."""
        raise NotImplementedError

    async def seed(self, count: int) -> None:
        """Put `count` jobs into the queue in the quickest way that it has."""
        raise NotImplementedError

    async def work(self) -> None:
        """Run one worker, until it is cancelled."""
        raise NotImplementedError

    async def left(self) -> int:
        """How many jobs have not ended in the database."""
        raise NotImplementedError


def say(**result: Any) -> None:
    """Tell the parent something."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


async def heard() -> None:
    """Wait for the parent's next line. Without a parent the process ends."""
    if not await asyncio.to_thread(sys.stdin.readline):
        os._exit(1)


async def ready() -> None:
    """Say that all is prepared, and wait until the parent says to begin."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await heard()


async def done(**result: Any) -> None:
    """Say the result, and keep all sessions until the parent has read what they used."""
    say(**result)
    await heard()


async def enqueue(peer: Peer) -> None:
    """One job a transaction, over many connections."""
    lanes, count = peer.order["connections"], peer.run.count
    await peer.open(lanes)

    async def lane(first: int) -> None:
        for number in range(first, count, lanes):
            await peer.enqueue(first, number)

    await asyncio.gather(*(peer.enqueue(first, -1 - first) for first in range(lanes)))
    await ready()
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*map(lane, range(lanes)))
    await done(seconds=time.monotonic() - began, cpu=time.process_time() - cpu)


async def drain(peer: Peer) -> None:
    """One worker, from the start of its first job to the end of the last in the database."""
    await peer.open(1)
    await peer.seed(peer.run.count)
    await ready()
    working = asyncio.create_task(peer.work())
    called = asyncio.create_task(peer.run.all_called.wait())
    await asyncio.wait([working, called], return_when="FIRST_COMPLETED")
    if not called.done():
        working.result()
        raise RuntimeError("the worker has stopped")
    while await peer.left():
        await asyncio.sleep(POLL)
    assert peer.run.first is not None
    began, cpu = peer.run.first
    await done(seconds=time.monotonic() - began, cpu=time.process_time() - cpu)


async def latency(peer: Peer) -> None:
    """One job at a time on an idle worker."""
    await peer.open(1)
    working = asyncio.create_task(peer.work())
    peer.run.count += WARM
    committed = {}
    started = False
    loop = asyncio.get_running_loop()
    began = loop.time() + 1
    for number in range(peer.run.count):
        if number == WARM:
            await ready()
            began, started = loop.time() - number * INTERVAL, True
        await asyncio.sleep(max(0.0, began + number * INTERVAL - loop.time()))
        await peer.enqueue(0, number)
        if started:
            committed[number] = time.time()
    await asyncio.wait_for(peer.run.all_called.wait(), 60)
    took = sorted((peer.run.began[number] - at) * 1e3 for number, at in committed.items())
    await done(p50=took[len(took) // 2], p99=took[int(len(took) * 0.99)])
    working.cancel()


async def perform(kind: type[Peer], order: dict[str, Any]) -> None:
    """Do what was ordered."""
    peer = kind(order)
    if order["work"] == "install":
        await peer.install()
        say(version=kind.version)
        return
    await {"enqueue": enqueue, "drain": drain, "http": drain, "latency": latency}[order["work"]](peer)


def main(kind: type[Peer]) -> None:
    """Run the driver of a peer, and end without its threads and its waits for a clean stop."""
    uvloop.run(perform(kind, json.loads(sys.stdin.readline())))
    sys.stdout.flush()
    os._exit(0)
