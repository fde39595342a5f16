"""`python -m idem.cli.bench.accepting`: a client that accepts intents through the library, one a transaction.

It reads one line of JSON (`Order`), prints `ready`, waits for the parent's line, does the work and prints its result.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from idem.cli.bench import job
from idem.cli.bench.application import TENANT, operation
from idem.cli.bench.driver import driver

WARM = "bench.warm"


@dataclass(frozen=True, slots=True)
class Order:
    """`count` intents of an operation over so many connections; each has accepted some of `warm` intents before.

    `prefix`: of the keys. With `interval` (seconds) one at a time, and the result says when each was committed.
    """

    operation: str
    count: int
    connections: int
    warm: int
    prefix: str
    interval: float | None = None


async def accept(connection: AsyncConnection, name: str, key: str, number: int) -> str:
    """Accept one intent in a transaction of its own, and return its id."""
    params = {"amount": 100 + number % 900, "order": f"order-{number}"}
    async with connection.begin():
        decision = await operation(name).accept_async(connection, params, key=key, tenant=TENANT)
    return str(decision.intent_id)


async def lane(engine: AsyncEngine, order: Order, first: int, began: asyncio.Event, ready: asyncio.Semaphore) -> None:
    """The part of one connection: accept its share of `warm`, wait for `began`, then accept its share of `count`."""
    async with engine.connect() as connection:
        for number in range(first, order.warm, order.connections):
            await accept(connection, WARM, f"warm-{order.prefix}{number}", number)
        ready.release()
        await began.wait()
        for number in range(first, order.count, order.connections):
            await accept(connection, order.operation, f"{order.prefix}{number}", number)


async def at_intervals(engine: AsyncEngine, order: Order, interval: float) -> dict[str, float]:
    """One intent every `interval` seconds; returns when each was committed, in seconds since 1970."""
    loop, committed = asyncio.get_running_loop(), {}

    async def every(name: str, prefix: str, count: int) -> AsyncIterator[tuple[str, float]]:
        began = loop.time()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number * interval - loop.time()))
            yield await accept(connection, name, f"{prefix}{number}", number), time.time()

    async with engine.connect() as connection:
        # The catalogue is read, the statement is prepared, and the connection for hints is made.
        async for _ in every(WARM, f"warm-{order.prefix}", order.warm):
            pass
        await asyncio.to_thread(job.ready)
        async for intent, moment in every(order.operation, order.prefix, order.count):
            committed[intent] = moment
    return committed


async def all_lanes(engine: AsyncEngine, order: Order) -> dict[str, float]:
    """All connections' parts, beside each other; returns what it took. Raises what the first lane that fails raises."""
    began, ready = asyncio.Event(), asyncio.Semaphore(0)
    try:
        async with asyncio.TaskGroup() as group:
            for first in range(order.connections):
                group.create_task(lane(engine, order, first, began, ready))
            for _ in range(order.connections):
                await ready.acquire()
            await asyncio.to_thread(job.ready)
            seconds, cpu = time.monotonic(), time.process_time()
            began.set()
    except* Exception as failed:
        raise failed.exceptions[0] from None
    return {"seconds": time.monotonic() - seconds, "cpu": time.process_time() - cpu}


async def run(asked: dict[str, Any]) -> None:
    """Do what was ordered."""
    order = Order(**asked)
    url = os.environ["IDEM_DATABASE_URL"].replace("postgresql://", f"postgresql+{driver()}://", 1)
    named = {"application_name": "idem bench client"}
    arguments = {"server_settings": named} if driver() == "asyncpg" else named
    engine = create_async_engine(url, pool_size=order.connections, max_overflow=0, connect_args=arguments)
    try:
        if order.interval is None:
            job.done(**await all_lanes(engine, order))
        else:
            job.done(committed=await at_intervals(engine, order, order.interval))
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(run(job.order()))
