"""Every hot statement over 100,000 rows, as a generic plan, under each kind of statistics (perf.md, lesson 2).

`idle`: taken when nothing was pending or claimed, as on every queue that is kept up with; `make test` has this kind
alone. `none`: never taken. `fresh`: of the rows as they are. `drained`: the same, but the tables whose rows leave were
empty when they were counted. `emptied`: every table was. Each statement runs as the daemon role, so this also holds its
rights. What no statistics may do is in `test_joins`.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from fix_sql import query
from schema import backlog, explained, hot_statements, shapes
from schema.buried import BURIED
from schema.databases import Installed, new_database

Connection = psycopg.Connection[Any]
ROWS = 20 * hot_statements.BATCH
"""Rows that a statement of a batch may look at in one node: bounded by the batch, not by the table."""
KEY = "SELECT tenant_id, operation, idempotency_key FROM idem.idempotency_keys WHERE intent_id = %s"


KINDS = ("none", "fresh", "emptied", "drained")


@pytest.fixture(scope="module", params=["idle", *(pytest.param(kind, marks=pytest.mark.campaign) for kind in KINDS)])
def planned(request: pytest.FixtureRequest, server: str, loaded: str) -> Iterator[str]:
    """The backlog under one kind of statistics."""
    if request.param == "idle":
        yield loaded
        return
    with new_database(server, template=urlsplit(loaded).path[1:]) as url:
        if request.param == "none":
            backlog.forget_statistics(url)
        elif request.param == "emptied":
            backlog.say_empty(url)
        else:
            query(url, "ANALYZE")
        if request.param == "drained":
            backlog.say_empty(url, *backlog.DRAINED)
        yield url


@pytest.fixture
def connection(planned: str) -> Iterator[Connection]:
    with psycopg.connect(planned) as opened:
        yield opened
        opened.rollback()


@pytest.mark.parametrize("name", hot_statements.statements())
def test_ib_052_a_hot_statement_reads_by_its_batch(
    connection: Connection, installed_once: Installed, name: str
) -> None:
    parameters = hot_statements.values(connection)(name)
    connection.execute(f"SET LOCAL ROLE {installed_once.daemon}")
    nodes = explained.explain(connection, hot_statements.statements()[name], parameters)
    if name.rpartition(".")[2] in hot_statements.WHOLE:
        ledger = backlog.HOT - {"outbox"}
        assert explained.faults(nodes, ledger, hot_statements.BATCH, rows=backlog.OPEN) == []
    else:
        assert explained.faults(nodes, backlog.HOT, hot_statements.BATCH, rows=ROWS) == []
    assert [node.text for node in nodes if "idem.memory_" in node.text] == [], "the planner puts its body there"


SEEN = """
SELECT relname, seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
 WHERE schemaname = 'idem' AND relname = ANY (%s) AND (seq_scan > 0 OR idx_tup_fetch > 50)
"""
ACCEPT = """
SELECT d.decision FROM idem.accept(%s, 'pay', %s, 'v1:0', '{"amount": 100}', NULL, %s, %s, 'https://bank.test',
    %s, 'POST', '/payments', '{}', '\\x7b7d', interval '1 day', interval '1 hour', 86400, false, NULL
) AS d
"""


@pytest.mark.parametrize(
    ("number", "decision"),
    [
        (None, "accepted"), (110_001, "replay"), (129_001, "expired"), (30_001, "unknown"), (93_001, "in_progress"),
        (95_001, "unknown"), (60_001, "in_progress"), (5_001, "needs_operator"), (24_001, "retrying"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["auto", "force_generic_plan", "force_custom_plan"])
def test_what_accept_does_inside_reads_by_its_keys(
    connection: Connection, installed_once: Installed, number: int | None, decision: str, mode: str
) -> None:
    """Whatever the caller's session plans by; each decision seven times, for the sixth plan is the generic one."""
    connection.execute(f"SET LOCAL ROLE {installed_once.producer}")
    connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
    for attempt in range(7):
        key = number if number is not None else 1_000_000 + attempt
        connection.execute("SAVEPOINT before")
        lane = (f"p{key % 5}", f"a{key % 2}") if number is not None else ("p0", "a0")
        own = shapes.derived(connection, f"t{key % 7}", "pay", f"key {key}")
        assert connection.execute(ACCEPT, (f"t{key % 7}", f"key {key}", *lane, own)).fetchone() == (decision,)
        if decision == "retrying":
            connection.execute("ROLLBACK TO SAVEPOINT before")
    found = connection.execute(SEEN, [sorted(backlog.HOT)]).fetchall()
    assert [(table, scans) for table, scans, _ in found if scans] == []
    assert [(table, rows) for table, _, rows in found if rows > 7 * 50] == []


DUE = BURIED.replace("CASE WHEN n % 2 = 0 THEN now() END", "NULL").replace(
    "CASE WHEN n % 2 = 0 THEN 'unknown' ELSE 'held' END", "'pending'"
)
FROZEN = """
INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
SELECT id, intent_id, provider_key, provider, account, 'POST', '/', '{}', '' FROM idem.outbox WHERE status = 'pending'
"""


@pytest.mark.parametrize("analyzed", [False, True])
def test_ib_052_rows_that_cannot_be_claimed_cost_the_claim_nothing(installed: Installed, analyzed: bool) -> None:
    """50,000 at rest, 50,000 unknown and all of them overdue; the claim of the ten due rows touches some hundred
    pages, of the thousands that the table has."""
    claim = hot_statements.statements()["claim.CLAIM"]
    lane = {**hot_statements.LANE, **hot_statements.HOLD, "concurrency": 50, "asking": 5}
    with psycopg.connect(installed.superuser_url) as opened:
        opened.execute("SET session_replication_role = replica")
        opened.execute("ALTER TABLE idem.outbox SET (autovacuum_enabled = off)")
        opened.execute(BURIED)
        opened.execute(DUE.replace("100000", "10"))
        opened.execute(FROZEN)
        if analyzed:
            opened.execute("ANALYZE idem.outbox")
        nodes = explained.explain(opened, claim, lane)
        assert explained.faults(nodes, frozenset({"outbox"}), hot_statements.BATCH, rows=20) == []
        assert max(node.rows for node in nodes if node.kind == "ModifyTable") == 10
        touched = explained.buffers(opened, claim, lane)
        pages = opened.execute("SELECT pg_relation_size('idem.outbox') / 8192").fetchone()
        assert pages and pages[0] > 2000
        assert touched < 500
