"""The examples for psql and Node run as they stand, against a real database, worker and bank; so does `db sync`."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from fix_desk import CONFIGURATION, run
from fix_spine import Spine, operation
from fix_sql import query
from producers.application import Application

from idem.migrations import runner
from idem.testing.embedded.binaries import find_binaries

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = ROOT / ".idem" / "test" / "node"


@dataclass(frozen=True)
class Shop:
    """The database as the example's own role sees it."""

    spine: Spine
    url: str
    environment: dict[str, str]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return Application(self.spine.url).rows(query)


@pytest.fixture
def shop(spine: Spine, tmp_path: Path, superuser_url: str) -> Iterator[Shop]:
    """`idem db sync` and `idem db grant` as a person runs them; the role owns nothing of idem's."""
    config = CONFIGURATION.replace("ORIGIN", spine.bank.url).replace('"pay.keyed"', '"payments.create"')
    (tmp_path / "idem.toml").write_text(config)
    environment = {"IDEM_CONFIG": str(tmp_path / "idem.toml"), "IDEM_DATABASE_URL": spine.url}
    synced = run(("db", "sync"), environment)
    assert synced.code == 0, synced.err
    assert synced.out == "payments.create: new, version 1\n"
    spine.catalogue = type(spine.catalogue)(
        spine.catalogue.environment,
        spine.catalogue.providers,
        {"payments.create": operation("payments.create", "keyed")},
    )
    role = f"shop_{uuid4().hex[:12]}"
    query(superuser_url, f"CREATE ROLE {role} LOGIN")
    try:
        runner.grant(spine.url, role, "sql", ["acme"])
        query(spine.url, f"GRANT CREATE ON SCHEMA public TO {role}")
        yield Shop(spine, spine.url.replace("postgres@", f"{role}@"), environment)
    finally:
        query(spine.url, f"DROP OWNED BY {role}")
        query(superuser_url, f"DROP ROLE {role}")


def psql() -> str:
    beside = find_binaries()[0] / "psql"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("psql")
    if found is None:
        pytest.skip("there is no psql here: neither beside the server's programs nor on PATH")
    return found


async def test_the_psql_example_runs_as_it_stands(shop: Shop) -> None:
    script = ROOT / "examples" / "psql" / "orders.sql"
    command = [psql(), "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-f", str(script), shop.url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if not line[0].isdigit()]
    assert said == [
        "decision: accepted", "decision: in_progress", "the same intent: t", "decision: mismatch",
    ]  # fmt: skip
    again = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and "decision: in_progress" in again.stdout, again.stderr
    assert shop.rows("SELECT o.id FROM psql_orders o JOIN idem.intents i ON i.id = o.intent") == [("psql-1",)]
    assert await shop.spine.works() == 1


async def test_the_transaction_of_the_page_writes_its_order_once(shop: Shop) -> None:
    """The key of a retry is known, and the order has no constraint that would refuse a second row."""
    (block,) = re.findall(r"```sql\nBEGIN;\n(.*?)COMMIT;", (ROOT / "docs" / "adopt" / "sql.md").read_text(), re.DOTALL)
    with psycopg.connect(shop.url) as program:
        program.execute("CREATE TABLE orders (id text, amount integer)")
        decisions = []
        for _ in range(2):
            decisions += [row[0] for row in program.execute(block)]
            program.commit()
    assert decisions == ["accepted", "in_progress"]
    assert shop.rows("SELECT id, amount FROM orders") == [("order-1", 4200)]
    assert await shop.spine.works() == 1


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """The example's packages, installed once for all runs of the tests."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no node or no npm here")
    NODE_MODULES.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "examples" / "node" / "package.json", NODE_MODULES)
    if not (NODE_MODULES / "node_modules" / "pg").exists():
        done = subprocess.run(
            [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=NODE_MODULES, capture_output=True, text=True, timeout=170,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.skip(f"npm cannot get the package pg here: {done.stderr.strip().splitlines()[-1:]}")
    for name in ("idem.js", "orders.js"):
        shutil.copy(ROOT / "examples" / "node" / name, NODE_MODULES)
    return NODE_MODULES


def order(place: Path, shop: Shop, *arguments: str) -> subprocess.CompletedProcess[str]:
    # node-postgres reads the host of a socket from the environment, not from the query of a URL.
    parts = psycopg.conninfo.conninfo_to_dict(shop.url)
    environment = {
        "PATH": os.environ["PATH"],
        "PGHOST": str(parts.get("host", "localhost")), "PGPORT": str(parts.get("port", 5432)),
        "PGUSER": str(parts["user"]), "PGDATABASE": str(parts["dbname"]), "PGPASSWORD": str(parts.get("password", "")),
    }  # fmt: skip
    return subprocess.run(
        ["node", "orders.js", *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=60
    )


async def test_the_node_example_runs_as_it_stands(shop: Shop, node_modules: Path) -> None:
    first = order(node_modules, shop, "order-7", "4200")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["status"] == 202
    again = json.loads(order(node_modules, shop, "order-7", "4200").stdout)
    assert (again["status"], again["code"]) == (409, "in_progress")
    other = json.loads(order(node_modules, shop, "order-7", "9900").stdout)
    assert (other["status"], other["code"]) == (422, "key_reused")
    await shop.spine.work()
    final = json.loads(order(node_modules, shop, "order-7", "4200").stdout)
    assert final["status"] == 201 and json.loads(final["body"])["intent"] == told["intent"]
    assert shop.rows("SELECT id, amount, intent::text FROM orders") == [("order-7", 4200, told["intent"])]
    assert shop.spine.effects() == 1


def test_the_node_example_says_what_to_do_when_it_is_refused(shop: Shop, node_modules: Path) -> None:
    query(shop.spine.url, "DELETE FROM idem.producers")
    refused = order(node_modules, shop, "order-8", "1")
    assert refused.returncode == 1
    assert "42501" in refused.stderr and "idem db grant" in refused.stderr and "    at " not in refused.stderr
    assert shop.rows("SELECT count(*) FROM orders") == [(0,)]


def test_sync_says_what_changed(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "idem.toml"
    path.write_text(path.read_text() + '\nkey_ttl = "100h"\n')
    changed = run(("db", "sync"), shop.environment)
    assert changed.code == 0, changed.err
    assert changed.out == "payments.create: changed, version 2\n  key_ttl: 259200.0 -> 360000.0\n"
    data = json.loads(run(("db", "sync", "--json"), shop.environment).out)
    assert data == {"operations": [{"name": "payments.create", "version": 2, "what": "unchanged", "changes": []}]}


def test_sync_refuses_another_environment(shop: Shop) -> None:
    refused = run(("db", "sync"), shop.environment | {"IDEM_ENVIRONMENT": "production"})
    assert refused.code == 1 and "it is the wrong database, or the wrong idem.toml" in refused.err
    assert shop.rows("SELECT version FROM idem.operations") == [(1,)]
