"""A provider that is down for long: every API process stays ready, and takes what comes. Figures for a note.

pytest tests/api/measure_provider_down.py -s          # IDEM_PROVIDER_DOWN=600 seconds, two processes and a worker
"""

import asyncio
import os
import sys
from collections import Counter

import httpx
import pytest
from api_process import apis
from fix_spine import Spine, catalogue

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.tenants import tokens
from idem.outbox.worker.worker import Worker

SECONDS = int(os.environ.get("IDEM_PROVIDER_DOWN", "600"))
NOBODY = "http://127.0.0.1:9"


@pytest.mark.timeout(SECONDS + 120)
async def test_every_process_stays_ready(spine: Spine) -> None:
    async with spine.database.connection() as connection:
        _, token = await tokens.create(connection, "t", "down")
    ready, said = Counter[int](), Counter[int]()
    stop = asyncio.Event()
    worker = asyncio.create_task(
        Worker(spine.database, catalogue(NOBODY), WorkerSettings(lease=30, margin=1, poll=0.2)).run(stop)
    )
    with apis(spine.url, NOBODY, 2) as addresses:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
            for second in range(SECONDS):
                for address in addresses:
                    ready[(await http.get(f"{address}/readyz")).status_code] += 1
                    answer = await http.post(
                        f"{address}/v1/intents/pay.keyed",
                        headers={"Idempotency-Key": f"k{second}-{address[-5:]}"},
                        json={"amount": 100},
                    )
                    said[answer.status_code] += 1
                await asyncio.sleep(1)
    stop.set()
    await worker
    states = {row["status"] for row in await spine.all("SELECT DISTINCT status FROM idem.outbox")}
    sys.stderr.write(f"\n{SECONDS} s: /readyz {dict(ready)}, requests {dict(said)}, rows are {sorted(states)}\n")
    assert set(ready) == {200}
    assert set(said) == {202}
    assert states == {"pending"}
