"""How long one batch of the sweeper takes that ends keys past their time, and an accept beside it.

    .venv/bin/python tests/measure/reaper.py [--keys 1000000]

The keys lose their answers first, and then go. Prints one line of JSON for each of the two, and one of the accepts
alone: of the batches and accepts the milliseconds that half of them, 99 of 100 and all of them stay below, by the
clock, and for the batches of PostgreSQL's CPU too. A busy machine changes the first, and the second less.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
import fix_spine
import psycopg
from accept import spent
from fix_accept import Acceptor
from seeded import seed
from sqlalchemy import create_engine

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.observe import telemetry
from idem.outbox.settle.change_pages import Place
from idem.sweeper.expired_keys import prune_keys

ORIGIN = "http://127.0.0.1:9"
TTL = 30 * 86400.0
PAUSE = 0.02
"""Seconds between two accepts."""
WARM = 10
"""Accepts that come before."""
TOMBSTONES = "UPDATE idem.idempotency_keys SET expires_at = now() - interval '1 hour' WHERE state = 'expired'"


def spread(times: list[float], name: str) -> dict[str, float]:
    """Milliseconds."""
    last = sorted(times)
    at = {"p50": len(last) // 2, "p99": len(last) * 99 // 100, "max": len(last) - 1}
    return {f"{name}_{word}_ms": round(last[place] * 1000, 2) for word, place in at.items()}


def accepts(url: str, goes_on: Callable[[], bool], told: Callable[[], None] = lambda: None) -> list[float]:
    """Accept a new key, and again, on one connection; the seconds that each took."""
    known = fix_spine.catalogue(ORIGIN)
    acceptor = Acceptor(known.operations, known.providers)
    engine, times = create_engine(url.replace("postgresql://", "postgresql+psycopg://")), []
    with engine.connect() as connection:
        while goes_on():
            began = time.perf_counter()
            with connection.begin():
                acceptor.accept(connection, "live", "pay.keyed", f"k{time.monotonic_ns()}", {"amount": 100})
            times.append(time.perf_counter() - began)
            if len(times) == WARM:
                told()
            time.sleep(PAUSE)
    return times[WARM:]


def beside(url: str) -> None:
    """In a process of its own, until its input ends: the accepts."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    say(spread(accepts(url, lambda: not over.is_set(), lambda: say({})), "accept"))


async def reap(url: str) -> dict[str, Any]:
    """Batches until no key is past its time."""
    clocks, cpu, done = [], [], 0
    batch = SweeperSettings.batch
    async with fix_database.connected(url, size=1) as database, database.connection() as connection:
        server = [connection.info.backend_pid]
        place = Place()
        while not place.over:
            began, used = time.perf_counter(), spent(server)
            changed = await prune_keys(connection, batch=batch, tombstone_ttl=TTL, place=place)
            clocks.append(time.perf_counter() - began)
            cpu.append(spent(server) - used)
            done += changed["expired"] + changed["deleted"]
    return {"keys": done, "batch": batch, **spread(clocks, "batch"), **spread(cpu, "cpu")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--beside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    telemetry.set_up(json=True, level="error")
    if asked.beside:
        return beside(asked.beside)
    with (
        fix_database.server() as server,
        fix_database.template(server) as template,
        fix_database.clone(server, template) as url,
    ):
        seed(url, asked.keys, status="settled", state="completed", origin=ORIGIN, lives=-3600.0)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            until = time.monotonic() + 10
            say({"kind": "accepts alone", **spread(accepts(url, lambda: time.monotonic() < until), "accept")})
            for kind in ("answers go", "keys go"):
                say({"kind": kind, **measured(url)})
                connection.execute("SET session_replication_role = replica")
                connection.execute(TOMBSTONES)
                connection.execute("VACUUM idem.idempotency_keys")


def measured(url: str) -> dict[str, Any]:
    """Batches, with accepts beside them."""
    command = [sys.executable, __file__, "--beside", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = asyncio.run(reap(url))
        said, _ = process.communicate()
    return found | json.loads(said)


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
