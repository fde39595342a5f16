"""Many clients that wait at one API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
from fix_api import PAY, Client
from fix_server import KEPT


@contextlib.asynccontextmanager
async def waiters(api: Client, number: int, *, keys: int) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
    """Send `number` requests with `keys` different keys; inside the block all of them wait."""
    # The API ends each wait (100 s). The client's own limit is there for a test that hangs, not for a slow machine.
    async with httpx.AsyncClient(
        base_url=api.url, headers={"Authorization": f"Bearer {api.token}"}, timeout=600, limits=KEPT, verify=False
    ) as http:
        asked = []
        for n in range(number):
            asked.append(
                asyncio.create_task(
                    http.post(
                        PAY, json={"amount": 100}, headers={"Idempotency-Key": f"w-{n % keys}", "Prefer": "wait=100"}
                    )
                )
            )
            if n % 50 == 49:
                while api.api.waiting < n - 200:
                    await asyncio.sleep(0.01)
        while api.api.waiting < number:
            await asyncio.sleep(0.02)
        try:
            yield asked
        finally:
            for task in asked:
                task.cancel()
