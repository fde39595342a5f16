"""Whether claim and settle stay as cheap as on an empty database: CPU a row beside many rows, and beside a snapshot.

    .venv/bin/python tests/measure/flatness.py [--scale 0.1] [--only empty,pending,settled]

Prints one line of JSON for each kind: microseconds a row of the worker and of PostgreSQL, and the share of the rate on
an empty database that follows from both together. `--scale 1` is 1,000,000 pending, unserved and future rows,
5,000,000 settled, 100,000 unknown, and a snapshot that is held while 200,000 are drained.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import fix_database
import fix_spine
import psycopg
from claim_and_settle import settle_all
from seeded import seed

from idem.outbox.observe import telemetry

ORIGIN = "http://127.0.0.1:9"
DRAINED = 20_000
KINDS = ("empty", "pending", "settled", "unknown", "unserved", "future", "snapshot")


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
        case "future":
            seed(url, many, origin=ORIGIN, due_in=86400.0)
        case _:
            pass
    seed(url, int(200_000 * scale) if kind == "snapshot" else DRAINED, origin=ORIGIN)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


async def measure(url: str, kind: str, scale: float) -> dict[str, Any]:
    known = fix_spine.catalogue(ORIGIN)
    rows = int(200_000 * scale) if kind == "snapshot" else DRAINED
    if kind != "snapshot":
        return await settle_all(url, known, rows)
    async with await psycopg.AsyncConnection.connect(url) as reader:
        await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM idem.installation")
        return await settle_all(url, known, rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--only", default=",".join(KINDS))
    asked = parser.parse_args()
    telemetry.set_up(json=True, level="error")
    empty: float | None = None
    with fix_database.server() as server, fix_database.template(server) as template:
        for kind in asked.only.split(","):
            with fix_database.clone(server, template) as url:
                prepare(url, kind, asked.scale)
                found = asyncio.run(measure(url, kind, asked.scale))
            both = found["worker_us"] + found["postgresql_us"]
            empty = both if kind == "empty" else empty
            share = {} if empty is None else {"share": round(empty / both, 2)}
            line = {"kind": kind, **{name: round(value, 1) for name, value in found.items()}, **share}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
