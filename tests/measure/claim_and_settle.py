"""CPU of claiming and settling calls of one-step operations: microseconds a row, of the worker and of PostgreSQL.

    .venv/bin/python tests/measure/claim_and_settle.py [ROWS]

It prints one line of JSON. To compare two trees, run it in each in turn, several times, and compare the medians:
the machine's noise is larger than what a column costs. It makes no HTTP call, so that it measures these two statements.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
import fix_spine
from fix_accept import Acceptor
from sqlalchemy import create_engine

from idem.outbox.domain.lane_scopes import lane_scopes
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.outcomes import Seen, Succeeded
from idem.outbox.domain.terms import Terms
from idem.outbox.observe import telemetry
from idem.outbox.settle import results
from idem.outbox.settle.report import Report
from idem.outbox.values import clock
from idem.outbox.worker import claim as claims
from idem.outbox.worker.fairness import TenantRound

BATCH = 100
TICK = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> float:
    """CPU seconds of a process, user and system."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def accept(url: str, known: Any, rows: int) -> None:
    acceptor = Acceptor(known.operations, known.providers)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for number in range(rows):
            acceptor.accept(connection, "t", "pay.keyed", f"k{number}", {"amount": 100})
    engine.dispose()


async def settle_all(url: str, known: Any, rows: int) -> dict[str, float]:
    """Claim and settle so many rows of the lane `keyed`; microseconds a row."""
    lane = lane_scopes(known)["keyed", "keyed"][0]
    terms = Terms(known.providers["keyed"].contract, known.operations["pay.keyed"])
    answer = Answer(201, {"payment": "pay_1"})
    settled, tenants = 0, TenantRound()
    async with fix_database.connected(url, size=1) as database, database.connection() as connection:
        backend = connection.info.backend_pid
        own, server = time.process_time(), of_process(backend)
        while settled < rows:
            found = await claims.claim(
                connection, lane, token=uuid4(), holder="w", lease=60, limit=BATCH, now=clock.boottime(),
                tenants=tenants,
            )  # fmt: skip
            if not found:
                break
            reports = [Report(each.row, Succeeded(f"pay_{each.row.id}"), Seen(201), terms, answer) for each in found]
            settled += len(await results.settle_batch(connection, reports))
        own, server = time.process_time() - own, of_process(backend) - server
    return {"rows": settled, "worker_us": own / settled * 1e6, "postgresql_us": server / settled * 1e6}


async def measure(url: str, rows: int) -> dict[str, float]:
    known = fix_spine.catalogue("http://127.0.0.1:9")
    accept(url, known, rows)
    async with fix_database.connected(url, size=1) as database, database.connection() as connection:
        await connection.execute("ANALYZE")
    return await settle_all(url, known, rows)


def main(rows: int) -> None:
    telemetry.set_up(json=True, level="error")
    with (
        fix_database.server() as server,
        fix_database.template(server) as template,
        fix_database.clone(server, template) as url,
    ):
        found = asyncio.run(measure(url, rows))
    sys.stdout.write(json.dumps({name: round(value, 1) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
