"""A small application of a user, with its own table, its own Idem and its own tests, in its own folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fix_sql import query

SHOP = '''
from pydantic import BaseModel
from sqlalchemy import text

from idem import Answer, Idem, Request

idem = Idem()
idem.provider(
    "ledger",
    deadline="2s",
    connect_timeout="2s",
    flight_limit="60s",
    pause_allowance="2m",
    key={"carrier": "header", "name": "X-Request-Id", "replay": "stored", "retention": "24h"},
    lookup={
        "by_key": {"path": "/v1/charges/search?request={idem.key}", "object": "/results/0", "match": "/request_id",
                   "empty": "/results"},
        "by_id": {"path": "/v1/charges/{idem.reference}"},
        "horizon": "10s", "agree": 2,
    },
    errors={"shape": "/fault/kind", "code": "/fault/kind", "message": "/fault/text"},
    object={"reference": "/charge/ref", "status": "/charge/state"},
    outcome=[
        {"says": "final", "when": {"/charge/state": ["paid", "captured"]}},
        {"says": "pending", "when": {"/charge/state": "queued"}},
        {"says": "refused", "status": 402, "when": {"/charge/state": "denied"}},
    ],
    accounts={"main": {"origin": "https://ledger.example", "authorization": {"env": "LEDGER_TOKEN"}}},
)


class Charge(BaseModel):
    order: int
    cents: int


charge = idem.operation(
    "charges.create",
    Charge,
    provider="ledger",
    request=lambda p: Request("POST", "/v1/charges", json={"cents": p.cents, "order": f"order-{p.order}"}),
    answer=lambda o: Answer(201 if o.succeeded else 402, {"charge": o.reference, "state": o.status}),
)


@charge.on_settled
def mark_order(db, settled):
    state = "paid" if settled.succeeded else settled.state
    db.execute(text("UPDATE orders SET state = :s WHERE id = :i"), {"s": state, "i": settled.params.order})


def pay(engine, order, key):
    """The answer to one request, as their endpoint gives it."""
    call = charge.begin(key=key, body={"order": order})
    with engine.begin() as db:
        if call.reserve(db):
            cents = db.execute(text("SELECT cents FROM orders WHERE id = :i FOR UPDATE"), {"i": order}).scalar_one()
            call.submit(db, Charge(order=order, cents=cents))
    return call.answer()
'''

CONFTEST = """
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

import shop


def noted(url):
    with open("databases.txt", "a") as notes:
        print(url.partition("?")[0].rpartition("/")[2].removesuffix("_template"), file=notes)


def engine_of(url):
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)


@pytest.fixture(scope="session")
def idem_migrate():
    def migrate(url):
        noted(url)
        with engine_of(url).begin() as db:
            db.execute(text("CREATE TABLE orders (id serial PRIMARY KEY, cents int NOT NULL, state text)"))

    return migrate


@pytest.fixture
def engine(idem_database):
    engine = engine_of(idem_database)
    yield engine
    engine.dispose()


@pytest.fixture
def order(engine):
    with engine.begin() as db:
        return db.execute(text("INSERT INTO orders (cents) VALUES (4200) RETURNING id")).scalar_one()


@pytest.fixture
def lab(idem_lab):
    return idem_lab(shop.idem)
"""


@dataclass
class Project:
    """The folder of the application. `run` runs its tests like its developers would."""

    folder: Path

    def write(self, **files: str) -> None:
        """Write modules; the names are without `.py`."""
        for name, content in files.items():
            (self.folder / f"{name}.py").write_text(content)

    def run(self, *arguments: str, **environment: str) -> Run:
        """Run pytest in its folder; pytest finds idem only through the entry point."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments],
            cwd=self.folder, env=kept | environment, capture_output=True, text=True, timeout=170,
        )  # fmt: skip
        return Run(done.returncode, done.stderr + done.stdout)

    def databases(self, url: str) -> list[str]:
        """The databases of its runs that are still on the server."""
        rows = query(url, "SELECT datname FROM pg_database ORDER BY datname")
        runs = (self.folder / "databases.txt").read_text().split()
        return [name for (name,) in rows if name.startswith(tuple(runs))]


@dataclass
class Run:
    """The result of a run."""

    code: int
    output: str

    def count(self, word: str) -> int:
        """The number before a word in the last line: `3 passed, 1 failed in 2.1s`."""
        found = re.findall(rf"(\d+) {word}", self.output.strip().splitlines()[-1])
        return int(found[0]) if found else 0
