"""CPU of accepting: microseconds an accept, of the client and of PostgreSQL, beside the barest three rows.

    .venv/bin/python tests/measure/accept.py [ACCEPTS]

It prints one line of JSON: what each way costs, `new` for a new key and `replay` for the stored answer of a known one.
Each accept is a transaction of its own, on one of 16 connections. To compare two trees, run it in each in turn, several
times, and compare the medians. Linux counts the time of a process in /proc/PID/schedstat.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
import fix_spine
import psycopg
from fix_accept import Acceptor
from producers.application import synced
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

CONNECTIONS = 16
PARAMS = {"amount": 1250, "currency": "eur", "customer": "cus_9f3a1c07", "metadata": {"order": "o-2026-001"}}

BARE = """
CREATE TABLE bare_keys (tenant text, operation text, key text, PRIMARY KEY (tenant, operation, key));
CREATE TABLE bare_intents (id uuid PRIMARY KEY, params jsonb);
CREATE TABLE bare_outbox (id uuid PRIMARY KEY, body text);
"""
FLOOR = """
WITH k AS (INSERT INTO bare_keys VALUES (%s, 'pay.keyed', %s) ON CONFLICT DO NOTHING),
     i AS (INSERT INTO bare_intents VALUES (%s, %s))
INSERT INTO bare_outbox VALUES (%s, %s)
"""
BY_SQL = "SELECT d.decision FROM idem.accept(%s, 'pay.keyed', %s, %s) AS d"
# What a worker writes of an answer, without the call.
ANSWERED = """
SET session_replication_role = replica;
UPDATE idem.idempotency_keys SET state = 'completed', completed_at = now(), response_status = 201,
       response_headers = '{}', response_body = '{"payment": "pay_1"}', response_schema_version = 1;
UPDATE idem.intents SET state = 'completed', outcome = 'succeeded', settled_at = now();
DELETE FROM idem.outbox;
RESET session_replication_role;
"""

Way = Callable[[str, int], Awaitable[Any]]
"""Accepts a key, on the connection of this number, in a transaction of its own."""


def spent(pids: list[int]) -> float:
    """CPU seconds of these processes."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


async def measured(way: Way, pids: list[int], keys: list[str]) -> dict[str, float]:
    waiting = iter(keys)

    async def lane(number: int) -> None:
        for key in waiting:
            await way(key, number)

    own, server, began = time.process_time(), spent(pids), time.monotonic()
    await asyncio.gather(*(lane(number) for number in range(CONNECTIONS)))
    took = time.monotonic() - began
    own, server = time.process_time() - own, spent(pids) - server
    return {
        "postgresql_us": server / len(keys) * 1e6, "client_us": own / len(keys) * 1e6, "a_second": len(keys) / took,
    }  # fmt: skip


async def of_library(engine: AsyncEngine, known: Any, prefix: str, number: int) -> dict[str, Any]:
    """New keys and replays through the library, over an engine of SQLAlchemy as an application has it."""
    acceptor = Acceptor(known.operations, known.providers)
    held = [await engine.connect() for _ in range(CONNECTIONS)]
    pids = [await each.scalar(text("SELECT pg_backend_pid()")) for each in held]
    await held[0].run_sync(acceptor.know)
    for each in held:
        await each.rollback()

    async def accept(key: str, lane: int) -> None:
        async with held[lane].begin():
            await acceptor.accept_async(held[lane], "t", "pay.keyed", key, PARAMS)

    found = await both(accept, pids, prefix, number, str(engine.url.set(drivername="postgresql")))
    for each in held:
        await each.close()
    await engine.dispose()
    return found


async def of_statement(url: str, statement: str, values: Callable[[str], tuple[Any, ...]], number: int) -> Any:
    """The same through one statement over psycopg."""
    held = [await psycopg.AsyncConnection.connect(url) for _ in range(CONNECTIONS)]

    async def accept(key: str, lane: int) -> None:
        await held[lane].execute(statement, values(key))
        await held[lane].commit()

    found = await both(accept, [each.info.backend_pid for each in held], "s", number, url)
    for each in held:
        await each.close()
    return found


async def both(accept: Way, pids: list[int], prefix: str, number: int, url: str) -> dict[str, Any]:
    keys = [f"{prefix}{each}" for each in range(number)]
    # Every connection has planned its statement, and has read the catalogue.
    await measured(accept, pids, [f"{prefix}-warm{each}" for each in range(CONNECTIONS * 25)])
    found = {"new": await measured(accept, pids, keys)}
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(ANSWERED)
        own.execute("VACUUM ANALYZE")
    found["replay"] = await measured(accept, pids, keys)
    return found


async def measure(url: str, number: int) -> dict[str, Any]:
    known = fix_spine.catalogue("http://127.0.0.1:9")
    synced(url, known)
    with psycopg.connect(url) as own:
        own.execute(BARE)
    written = json.dumps(PARAMS)
    there = url.partition("://")[2]
    return {
        "floor": (await of_statement(url, FLOOR, lambda key: ("t", key, uuid4(), written, uuid4(), written), number))[
            "new"
        ],
        "library_psycopg": await of_library(create_async_engine(f"postgresql+psycopg://{there}", pool_size=CONNECTIONS),
                                            known, "p", number),
        "library_asyncpg": await of_library(create_async_engine(f"postgresql+asyncpg://{there}", pool_size=CONNECTIONS),
                                            known, "a", number),
        "sql": await of_statement(url, BY_SQL, lambda key: ("t", key, written), number),
    }  # fmt: skip


def main(number: int) -> None:
    with (
        fix_database.server() as server,
        fix_database.template(server) as template,
        fix_database.clone(server, template) as url,
    ):
        found = asyncio.run(measure(url, number))
    sys.stdout.write(json.dumps(_rounded(found)) + "\n")


def _rounded(found: Any) -> Any:
    return {name: _rounded(each) for name, each in found.items()} if isinstance(found, dict) else round(found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
