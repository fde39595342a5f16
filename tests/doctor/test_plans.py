"""The doctor on a database in trouble: 100,000 open rows, 100,000 proofs, 130,000 intents. He reads no ledger whole."""

import importlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pkgutil import iter_modules
from typing import Any

import psycopg
import pytest
from doctor.conftest import DAEMONS
from fix_desk import run
from schema import backlog
from schema.databases import new_database
from schema.explained import nodes

import idem.cli.doctor
from idem.cli.doctor import accounts, lanes, locks, queue, unsettled, webhooks
from idem.testing.databases import HERE

LEDGERS = backlog.HOT - {"outbox"}
MOST = max(queue.MOST, lanes.MOST)

PARAMETERS: dict[str, Any] = {
    "longest": 86400.0,
    "window": 7200.0, "stated": "{}", "most": MOST, "sample": lanes.SAMPLE, "failures": lanes.MISSES,
    "newest": unsettled.NEWEST,
    "changed": datetime.now(UTC), "silent": 30.0, "names": ["outbox"], "tables": ["outbox"], "verbs": ["SELECT"],
    "columns": [""], "functions": ["lane_capacity"],
    "transactions": 1, "timeout": "5s", "lock": "2s", "recent": accounts.RECENT,
    "patience": locks.PATIENCE, "others": lanes.SENT_BY_OTHERS,
}  # fmt: skip


def statements() -> dict[str, str]:
    """Every SQL constant of the doctor's."""
    found: dict[str, str] = {}
    for module in iter_modules(idem.cli.doctor.__path__, "idem.cli.doctor."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.isupper() and isinstance(value, str) and re.match(r"\s*(SELECT|WITH)\b", value):
                found[f"{module.name.rpartition('.')[2]}.{name}"] = value
    return found


@pytest.fixture(scope="module")
def loaded(server: str, template: str) -> Iterator[str]:
    with new_database(server, template=template) as url:
        backlog.load(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(HERE)
            connection.execute(DAEMONS)
        yield url


@pytest.mark.parametrize("name", statements())
def test_no_statement_reads_a_ledger_whole(loaded: str, name: str) -> None:
    with psycopg.connect(loaded, cursor_factory=psycopg.ClientCursor) as connection:
        explain: Any = "EXPLAIN (ANALYZE, FORMAT JSON) " + statements()[name]
        most = unsettled.MOST if name.startswith("unsettled.") else MOST
        found = connection.execute(explain, PARAMETERS | {"most": most}).fetchone()
        connection.rollback()
    assert found is not None
    for node in nodes(found[0][0]["Plan"]):
        if node.get("Relation Name") in LEDGERS:
            assert node["Node Type"] != "Seq Scan" or node["Actual Rows"] <= 10_000, node
            assert node["Actual Rows"] * node["Actual Loops"] <= MOST
            assert node.get("Rows Removed by Filter", 0) * node["Actual Loops"] <= MOST


def test_every_bound_is_one_of_the_statement() -> None:
    for sql in (queue.OPEN, lanes.REFUSED, unsettled.LETTERS, unsettled.ORPHANS, unsettled.PROOFS, webhooks.RECEIVED):
        assert "LIMIT %(" in sql


def test_every_check_is_made_in_time(loaded: str, variables: dict[str, str]) -> None:
    result = run(["doctor", "--json"], variables | {"IDEM_DATABASE_URL": loaded})
    assert result.code == 1
    found = result.data["findings"]
    assert [each for each in found if "could not be checked" in each["what"]] == []
    checks = {each["check"] for each in found if each["level"] == "error"}
    assert {"queue", "unserved", "proofs", "webhooks"} <= checks
