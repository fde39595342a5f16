"""Figures of shares: how soon others are picked up with and without a bulk run of one tenant, and claims a second.

Run it by hand, with the URL of a server on which it may create a database in IDEM_TEST_DATABASE_URL:
`python tests/shares/measure_shares.py [rows of the bulk run] [seconds of each phase] [seconds that the bank takes]`.
With calls as short as the processor can keep up with, it is the processor that is shared, not the slots.
"""

import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fix_sql import query

sys.path.insert(0, str(Path(__file__).parent.parent))

import psycopg
from fix_database import ENVIRONMENT, on
from fix_spine import catalogue
from schema import explained, hot_statements
from shares.queues import PLANT, grab, plant

from idem.migrations import runner
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.daemon.daemon import stop_on_signals
from idem.outbox.database.pool import Database
from idem.outbox.domain.lane_names import LaneName
from idem.outbox.observe import telemetry
from idem.outbox.worker.claim import CLAIM
from idem.outbox.worker.fairness import TenantRound
from idem.outbox.worker.worker import Worker
from idem.testing.bank import Bank, BankAccount, BankSettings

WORKERS, SLOTS, LATENCY, RATE = 2, 8, 0.2, 20.0
"""Processes, calls at a time of each, seconds that the bank takes, rows a second of the other tenants together."""
BEGINS = 2.0
"""Seconds at the start of a phase that are counted apart: all calls of a bulk run begin together there, and end so."""
SHORT = 3000
"""Rows of a bulk run that keeps the slots as busy as a long one, for the length of a phase."""
PROCESSES = multiprocessing.get_context("spawn")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def serve_bank(ready: Connection, log: str, latency: float) -> None:
    """A bank that answers in `latency` seconds."""
    settings = BankSettings(
        log=Path(log), durable=False, latency=latency, accounts=(BankAccount("keyed", "keyed-token"),)
    )

    async def serve() -> None:
        async with Bank(settings) as bank:
            ready.send(bank.url)
            await asyncio.Event().wait()

    asyncio.run(serve())


def serve_worker(url: str, bank_url: str) -> None:
    """A worker process, as `idem worker run` has one."""
    telemetry.set_up(json=True, level="error")

    async def serve() -> None:
        database = Database(url, name="idem-measured", size=4)
        await database.open()
        worker = Worker(database, catalogue(bank_url), WorkerSettings(lease=30, margin=1, slots=SLOTS))
        with stop_on_signals() as stop:
            await worker.run(stop)
        await database.close()

    asyncio.run(serve())


@contextmanager
def new_database(server: str) -> Iterator[str]:
    name = f"idem_measure_{os.getpid()}"
    query(server, f"CREATE DATABASE {name}")
    try:
        runner.upgrade(on(server, name), environment=ENVIRONMENT)
        yield on(server, name)
    finally:
        query(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def started(process: BaseProcess) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join(30)


def bulk(url: str, rows: int, origin: str) -> None:
    """A bulk run of so many rows; what is left of the one before goes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM idem.outbox WHERE tenant_id = 'bulk' AND status = 'pending'")
        if rows:
            plant(url, rows, tenant="bulk", origin=origin)
        connection.execute("VACUUM ANALYZE idem.outbox")
        connection.execute("CHECKPOINT")


PICKED_UP = """
SELECT extract(epoch FROM e.claimed_at - i.requested_at)::float8 * 1000
  FROM idem.intents i JOIN idem.evidence e ON e.intent_id = i.id AND e.source = 'worker'
 WHERE i.tenant_id LIKE %s ORDER BY i.requested_at
"""
DONE = "SELECT count(*) FROM idem.intents WHERE tenant_id = 'bulk' AND state = 'completed'"


def traffic(url: str, origin: str, phase: str, seconds: float) -> tuple[list[float], float]:
    """Rows of fifty others, one at a time: milliseconds until each was picked up; the bulk run's calls a second."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        before, began, sent = connection.execute(DONE).fetchone() or (0,), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            values = {"rows": 1, "tenant": f"{phase} {sent % 50}", "due_in": -0.001, "status": "pending"}
            connection.execute(PLANT, values | {"origin": origin})
            connection.execute("NOTIFY idem_outbox")
            sent += 1
            time.sleep(max(0.0, began + sent / RATE - time.monotonic()))
        after = connection.execute(DONE).fetchone() or (0,)
        found: list[float] = []
        while len(found) < sent and time.monotonic() < began + seconds + 60:
            time.sleep(0.2)
            found = [waited for (waited,) in connection.execute(PICKED_UP, [f"{phase} %"])]
        if len(found) < sent:
            say(f"{sent - len(found)} of {sent} were not picked up")
        return found, (after[0] - before[0]) / seconds


def pick_up(url: str, rows: int, seconds: float, latency: float, log: str) -> None:
    """Phases in turn, without a bulk run, with a short one and with a long one, by the same workers."""
    ready, theirs = PROCESSES.Pipe()
    with ExitStack() as stack:
        stack.enter_context(started(PROCESSES.Process(target=serve_bank, args=(theirs, log, latency))))
        origin = ready.recv()
        for _ in range(WORKERS):
            stack.enter_context(started(PROCESSES.Process(target=serve_worker, args=(url, origin))))
        time.sleep(3)
        traffic(url, origin, "warm-up", 3)
        for turn in (1, 2):
            base = None
            for length in (0, SHORT, rows):
                bulk(url, length, origin)
                waited, rate = traffic(url, origin, f"{length} {turn}", seconds)
                first, waited = waited[: int(BEGINS * RATE)], waited[int(BEGINS * RATE) :]
                p50, p99 = statistics.median(waited), statistics.quantiles(waited, n=100)[98]
                base = base or (p50, p99)
                say(
                    f"{length:9,} wait: p50 {p50:6.1f} ms ({p50 / base[0]:.2f} x), p99 {p99:6.1f} ms "
                    f"({p99 / base[1]:.2f} x) of {len(waited)}; longest {max(waited):.0f} ms, "
                    f"in the first {BEGINS:.0f} s {max(first):.0f} ms; the bulk run gets {rate:.0f} calls/s"
                )


async def claims(url: str, rows: int) -> None:
    """Claims a second of eight rows each, and pages that one touches, over a short and a long queue in turn."""
    name = LaneName("keyed", "keyed", "o", ENVIRONMENT, ("pay.keyed",))
    database = Database(url, name="idem-measured", size=1)
    await database.open()
    rates: dict[int, list[float]] = {1000: [], rows: []}
    touched: dict[int, list[int]] = {1000: [], rows: []}
    for _ in range(3):
        for length in rates:
            await asyncio.to_thread(bulk, url, length, "o")
            turns = TenantRound()
            async with database.connection() as connection:
                began = time.monotonic()
                for _ in range(100):
                    assert len(await grab(connection, name, 8, turns)) == 8
                rates[length].append(100 / (time.monotonic() - began))
            touched[length].append(await asyncio.to_thread(pages, url))
    await database.close()
    for length in rates:
        say(f"{length:9,} wait: {statistics.median(rates[length]):.0f} claims/s of 8, pages {touched[length]}")


def pages(url: str) -> int:
    """Pages that a claim of eight rows touches; it is rolled back."""
    values: dict[str, Any] = {
        **hot_statements.HOLD, **hot_statements.LANE, "provider": "keyed", "account": "keyed", "origin": "o",
        "environment": ENVIRONMENT, "operations": ["pay.keyed"], "limit": 8, "concurrency": None,
    }  # fmt: skip
    with psycopg.connect(url) as connection:
        touched = explained.buffers(connection, CLAIM, values)
        connection.rollback()
    return touched


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    latency = float(sys.argv[3]) if len(sys.argv) > 3 else LATENCY
    with new_database(os.environ["IDEM_TEST_DATABASE_URL"]) as url, tempfile.TemporaryDirectory() as folder:
        asyncio.run(claims(url, rows))
        bulk(url, 0, "o")
        pick_up(url, rows, seconds, latency, f"{folder}/bank.jsonl")


if __name__ == "__main__":
    main()
