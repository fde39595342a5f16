"""How late waiters are answered, and what they cost meanwhile: figures for a note, not a test of the suite.

pytest tests/api/measure_waiting.py -s          # IDEM_WAITERS=5000 wait at one process, for as many keys
"""

import asyncio
import os
import sys
import time

import pytest
from api_process import apis
from fix_line import Line, target, through
from fix_spine import Spine

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.tenants import tokens
from idem.outbox.worker.worker import Worker
from idem.testing.proxy import Proxy

WAITERS = int(os.environ.get("IDEM_WAITERS", "5000"))


async def asked(url: str, token: str, number: int, sent: asyncio.Semaphore) -> tuple[int, float]:
    """One client that waits: the status that it hears, and when."""
    host, port = url.removeprefix("http://").split(":")
    async with sent:
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b'{"amount": 100}'
        writer.write(
            b"POST /v1/intents/pay.keyed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nIdempotency-Key: w-%d\r\n"
            b"Prefer: wait=300\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (token.encode(), number, len(body), body)
        )
        await writer.drain()
        await asyncio.sleep(0.2)  # no faster than one process can accept: this measures waiting
    line = await reader.readline()
    at = time.time()
    writer.close()
    return int(line.split()[1]), at


@pytest.mark.timeout(900)
async def test_waiters_at_one_process(spine: Spine) -> None:
    line = Line()
    async with spine.database.connection() as connection:
        _, token = await tokens.create(connection, "t", "waiting")
    async with Proxy(target(spine.url), line) as proxy:
        with apis(through(spine.url, proxy), spine.bank.url, 1) as addresses:
            slots = asyncio.Semaphore(40)
            clients = [asyncio.create_task(asked(addresses[0], token, n, slots)) for n in range(WAITERS)]
            while len(await spine.all("SELECT FROM idem.intents")) < WAITERS:
                await asyncio.sleep(0.5)
            await asyncio.sleep(2)
            before, began = line.sent, time.monotonic()
            await asyncio.sleep(10)
            rate = (line.sent - before) / (time.monotonic() - began)
            stop = asyncio.Event()
            worker = asyncio.create_task(
                Worker(spine.database, spine.catalogue, WorkerSettings(lease=60, margin=1, slots=32, poll=0.1)).run(
                    stop
                )
            )
            heard = await asyncio.gather(*clients)
            stop.set()
            await worker
    rows = await spine.all(
        "SELECT idempotency_key AS key, extract(epoch FROM completed_at)::float8 AS at FROM idem.idempotency_keys"
    )
    ended = {row["key"]: row["at"] for row in rows}
    late = sorted(at - ended[f"w-{n}"] for n, (_, at) in enumerate(heard))
    took = max(ended.values()) - min(ended.values())
    sys.stderr.write(
        f"\n{WAITERS} waiters: {rate:.1f} messages a second to the database while all waited; settled within "
        f"{took:.1f} s; "
        f"answered after p50 {late[len(late) // 2]:.2f} s, p99 {late[len(late) * 99 // 100]:.2f} s, "
        f"at the latest {late[-1]:.2f} s; statuses {sorted({status for status, _ in heard})}\n"
    )
    assert {status for status, _ in heard} == {201}
