"""100,000 followers of one unknown head: what claim, settlement, sweeper and an operator's list read of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from schema import hot_statements
from schema.backlog import forget_statistics, say_empty
from schema.explained import Node, explain

from idem import Answer
from idem.outbox.domain.states import KeyState
from idem.outbox.domain.transition import Change, Evidence, parameters
from idem.outbox.operator import ages, order
from idem.outbox.settle import gate
from idem.outbox.settle import order as ordering
from idem.outbox.worker import claim, unfrozen

pytestmark = pytest.mark.own_sessions

PLANTED = Path(__file__).with_name("plans_followers.sql").read_text()
NO_AUTOVACUUM = """
DO $$
DECLARE t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', t);
    END LOOP;
END $$
"""
FOLLOWERS = 100_000
MOST = 1100
"""Rows that any node may look at: the list of an operator counts up to 1,000."""
FEW = 250
HEAD, FIRST = UUID(int=1), UUID(int=2)
ORDER = {"tenant": "t", "group": "pay", "key": "o"}


@pytest.fixture(params=["none", "fresh", "emptied"])
def connection(request: pytest.FixtureRequest, db_url: str) -> Iterator[psycopg.Connection[Any]]:
    # A test before this one may have emptied this database, and autovacuum may have counted that.
    forget_statistics(db_url)
    with psycopg.connect(db_url, prepare_threshold=None) as opened:
        # Without statistics means without: autovacuum must not count the rows of a table that is being filled.
        opened.execute(NO_AUTOVACUUM)
        opened.execute("SET session_replication_role = replica")
        opened.execute(PLANTED, {"followers": FOLLOWERS})
        opened.execute("SET session_replication_role = origin")
        opened.commit()
        if request.param != "none":
            opened.execute("ANALYZE")
            opened.commit()
        if request.param == "emptied":
            say_empty(db_url)
        yield opened
        opened.rollback()


def most(nodes: list[Node], relation: str = "outbox") -> float:
    return max((node.read for node in nodes if node.relation == relation), default=0)


def settled() -> dict[str, Any]:
    """The head is found to have happened."""
    change = Change(
        HEAD, None, 1, None, KeyState.COMPLETED, Evidence("reconciler", "lookup"), ended="succeeded",
        answer=Answer(201, b"{}"), answer_ttl=60.0, reference="pay_1", event="completed",
    )  # fmt: skip
    return {"changes": json.dumps([parameters(change)]), "ids": [HEAD], "folds": [uuid4()]}


def test_nothing_reads_the_followers_of_a_head(connection: psycopg.Connection[Any]) -> None:
    hold = {**hot_statements.LANE, **hot_statements.HOLD, "concurrency": 2000, "provider": "p", "account": "a"}
    assert most(explain(connection, claim.CLAIM, hold)) <= FEW
    sources = {"calls": ["pay"], "providers": ["p"], "accounts": ["a"], "origins": ["https://bank.test"]}
    assert most(explain(connection, unfrozen.WAITS, sources)) <= FEW
    turns = {"environment": "test", "limit": 20, "after": "", "turns": 100}
    assert most(explain(connection, unfrozen.PICK, {**sources, **turns})) <= FEW
    page = {"tenant": "", "group": "", "key": "", "batch": 500}
    assert most(explain(connection, ordering.WAITING_KEYS, page)) <= FEW
    assert most(explain(connection, ordering.FIRST_OF_KEY, ORDER)) <= FEW
    assert most(explain(connection, ordering.ENTER, {"batch": 500})) <= FEW
    assert most(explain(connection, ages.ORDER, {})) <= FEW
    assert most(explain(connection, order.BLOCKED, {"tenant": None, "limit": 100})) <= MOST
    assert most(explain(connection, order.BLOCKED, {"tenant": "t", "limit": 100})) <= MOST
    assert most(explain(connection, order.PLACE, {"intent": FIRST})) <= FEW
    ready = {"ids": [FIRST], "source": "sweeper", "after": None}
    assert most(explain(connection, gate.WRITE, settled())) <= FEW
    row = connection.execute("SELECT status FROM idem.outbox WHERE id = %s", [FIRST]).fetchone()
    assert row == ("pending",), "EXPLAIN ANALYZE has settled the head, and with it promoted the first follower"
    assert most(explain(connection, ordering.PROMOTE, ready)) <= FEW


def test_an_accept_behind_them_reads_one_of_them(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_stat_reset()")
    connection.commit()
    for _ in range(7):
        found = connection.execute("SELECT place, blocked FROM idem.join_order('t', 'pay', 'o')").fetchone()
        assert found is not None and found[1]
    seen = connection.execute(
        "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = 'idem' AND relname = 'outbox'"
    ).fetchone()
    assert seen is not None and seen[0] == 0 and (seen[1] or 0) <= 7 * 10, seen
