"""Whether claim and settle stay as cheap as on an empty database: CPU a row beside many rows, and beside a snapshot.

    .venv/bin/python tests/measure/flatness.py [--scale 0.1] [--only pending,settled]

Each kind is measured between two empty databases, because the machine changes meanwhile: one line of JSON says the
microseconds a row of the worker and of PostgreSQL's session, the pages that were looked at for it, and the share of the
rate on the empty ones that follows from both together. `--scale 1` is 1,000,000 pending, unserved, paused and future
rows, 5,000,000 settled, 100,000 unknown, and a snapshot that is held while 1,000,000 are drained, of which the last
60,000 are measured.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
import fix_spine
import psycopg
from claim_and_settle import settle_all
from seeded import seed

from idem.outbox.observe import telemetry

ORIGIN = "http://127.0.0.1:9"
DRAINED = 60_000
KINDS = ("pending", "settled", "unknown", "unserved", "paused", "future", "snapshot")
PAGES = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
STANDS = "SELECT count(*) FROM idem.intents"


def prepare(url: str, kind: str, scale: float) -> None:
    many = int(1_000_000 * scale)
    match kind:
        case "pending":
            seed(url, many, origin=ORIGIN, due_in=0)
        case "settled":
            seed(url, 5 * many, status="settled", state="completed", origin=ORIGIN)
        case "unknown":
            seed(url, many // 10, status="unknown", state="unknown", origin=ORIGIN)
        case "unserved":
            seed(url, many, origin="http://127.0.0.1:10")
        case "paused":
            seed(url, many, origin=ORIGIN, due_in=0)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("SET session_replication_role = replica")
                connection.execute("UPDATE idem.outbox SET account = 'paused'")
                connection.execute(
                    "INSERT INTO idem.lanes (provider, account, paused) VALUES ('keyed', 'paused', true)"
                )
        case "future":
            seed(url, many, origin=ORIGIN, due_in=86400.0)
        case _:
            pass
    seed(url, many if kind == "snapshot" else DRAINED, origin=ORIGIN)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


async def drained(url: str, kind: str, scale: float) -> dict[str, float]:
    """Microseconds a row of the rows that are drained last."""
    known = fix_spine.catalogue(ORIGIN)
    if kind != "snapshot":
        return await settle_all(url, known, DRAINED)
    async with await psycopg.AsyncConnection.connect(url) as reader:
        await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await reader.execute(STANDS)
        began = time.monotonic()
        await settle_all(url, known, int(1_000_000 * scale) - DRAINED)
        return await settle_all(url, known, DRAINED) | {"held_s": time.monotonic() - began}


def touched(url: str) -> int:
    """Pages that were looked at in this database, by sessions that have ended: a count, which no other work changes."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(PAGES).fetchone()
    return int(found[0]) if found else 0


def measure(server: str, template: str, kind: str, scale: float) -> dict[str, float]:
    with fix_database.clone(server, template) as url:
        prepare(url, kind, scale)
        before = touched(url)
        found = asyncio.run(drained(url, kind, scale))
        rows = found["rows"] + (int(1_000_000 * scale) - DRAINED if kind == "snapshot" else 0)
        return found | {"pages": (touched(url) - before) / rows}


def both(found: dict[str, float]) -> float:
    return found["worker_us"] + found["postgresql_us"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--only", default=",".join(KINDS))
    asked = parser.parse_args()
    telemetry.set_up(json=True, level="error")
    with fix_database.server() as server, fix_database.template(server) as template:
        before = measure(server, template, "empty", asked.scale)
        for kind in asked.only.split(","):
            found = measure(server, template, kind, asked.scale)
            after = measure(server, template, "empty", asked.scale)
            empty = (both(before) + both(after)) / 2
            shown = {**found, "before_us": both(before), "after_us": both(after)}
            line = {"kind": kind} | {name: round(value, 1) for name, value in shown.items()}
            sys.stdout.write(json.dumps(line | {"share": round(empty / both(found), 2)}) + "\n")
            sys.stdout.flush()
            before = after


if __name__ == "__main__":
    main()
