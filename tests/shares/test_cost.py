"""What a claim costs, whatever waits: IB-052, IB-054, IB-055. Plans are generic, as the daemons run them."""

from typing import Any

import psycopg
import pytest
from schema import explained, hot_statements
from shares.queues import plant

from idem.outbox.worker.claim import CLAIM

BATCH, ROWS = 100, 300
"""`ROWS`: what one node may read. A hundred tenants are looked at, a hundred rows claimed."""
LANE = {
    **hot_statements.HOLD, "provider": "keyed", "account": "keyed", "origin": "o", "environment": "test",
    "calls": ["pay.keyed"], "formats": [1], "concurrency": None, "limit": BATCH,
}  # fmt: skip


@pytest.mark.parametrize("statistics", ["none", "fresh"])
@pytest.mark.parametrize("limit", [1, 8, BATCH])
def test_ib_054_a_bulk_run_and_a_thousand_tenants(
    db_url: str, connection: psycopg.Connection[Any], statistics: str, limit: int
) -> None:
    plant(db_url, 20_000, tenant="bulk")
    plant(db_url, 1000, due_in=-60)
    if statistics == "fresh":
        connection.execute("ANALYZE idem.outbox")
    for turns in (0, 100):
        nodes = explained.explain(connection, CLAIM, ({**LANE, "limit": limit, "turns": turns}))
        assert explained.faults(nodes, frozenset({"outbox", "requests"}), BATCH, rows=ROWS) == []
        assert max(node.rows for node in nodes if node.kind == "ModifyTable") == limit


@pytest.mark.parametrize("pending", [0, 10, 30, 100, 1000])
def test_ib_055_statistics_of_a_queue_that_was_nearly_empty(
    db_url: str, connection: psycopg.Connection[Any], pending: int
) -> None:
    """A planner that hopes for three rows sorts them; then there are 50,000."""
    plant(db_url, 20_000, tenant="t", status="held")
    if pending:
        plant(db_url, pending)
    connection.execute("ANALYZE idem.outbox")
    connection.commit()
    plant(db_url, 20_000, tenant="bulk")
    for turns in (0, 100):
        nodes = explained.explain(connection, CLAIM, {**LANE, "turns": turns})
        assert explained.faults(nodes, frozenset({"outbox"}), BATCH, rows=ROWS) == []


def test_thousands_in_back_off_cost_a_claim_a_bounded_look(db_url: str, connection: psycopg.Connection[Any]) -> None:
    plant(db_url, 20_000, due_in=3600)
    plant(db_url, 1000, tenant="bulk")
    nodes = explained.explain(connection, CLAIM, {**LANE, "after": "t"})
    assert explained.faults(nodes, frozenset({"outbox"}), BATCH, rows=ROWS) == []
    assert max(node.rows for node in nodes if node.kind == "ModifyTable") == BATCH


def test_an_idle_poll_reads_one_place_of_one_index(db_url: str, connection: psycopg.Connection[Any]) -> None:
    plant(db_url, 20_000, due_in=3600)
    nodes = explained.explain(connection, CLAIM, {**LANE, "turns": 0})
    assert sum(node.read for node in nodes if node.relation == "outbox") == 0
    assert explained.buffers(connection, CLAIM, {**LANE, "turns": 0}) <= 12
