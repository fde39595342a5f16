"""Many clients that wait at one API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
from fix_api import PAY, Client
from fix_server import KEPT

TOGETHER = 25
"""Requests of one httpx client. At each end its pool compares every connection with every other one: a thousand in one
pool cost a minute of the loop that the API and the worker of the test share."""


@contextlib.asynccontextmanager
async def waiters(api: Client, number: int, *, keys: int) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
    """Send `number` requests with `keys` different keys; inside the block all of them wait."""
    async with contextlib.AsyncExitStack() as clients:
        asked: list[asyncio.Task[httpx.Response]] = []
        for first in range(0, number, TOGETHER):
            # The API ends each wait. The client's own limit is there for a test that hangs, not for a slow machine.
            http = await clients.enter_async_context(
                httpx.AsyncClient(
                    base_url=api.url,
                    headers={"Authorization": f"Bearer {api.token}"},
                    timeout=600,
                    limits=KEPT,
                    verify=False,
                )
            )
            asked += [asyncio.create_task(_ask(http, f"w-{n % keys}")) for n in range(first, first + TOGETHER)]
            while api.api.waiting < first - 200:
                await asyncio.sleep(0.01)
        while api.api.waiting < number:
            await asyncio.sleep(0.02)
        try:
            yield asked
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


async def _ask(http: httpx.AsyncClient, key: str) -> httpx.Response:
    return await http.post(PAY, json={"amount": 100}, headers={"Idempotency-Key": key, "Prefer": "wait=500"})
