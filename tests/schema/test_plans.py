"""Every hot statement over 100,000 rows, as a generic plan, under three kinds of statistics (perf.md, lesson 2).

`idle`: taken when nothing was pending or claimed, as on every queue that is kept up with. `none`: never taken.
`fresh`: of the rows as they are. Each statement runs as the daemon role, so this also holds its rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from schema import backlog, explained, hot_statements
from schema.databases import Installed, new_database

Connection = psycopg.Connection[Any]
ROWS = 20 * hot_statements.BATCH
"""Rows that a statement of a batch may look at in one node: bounded by the batch, not by the table."""
KEY = "SELECT tenant_id, operation, idempotency_key FROM idem.idempotency_keys WHERE intent_id = %s"


@pytest.fixture(scope="module")
def loaded(server: str, installed_once: Installed) -> Iterator[str]:
    """The backlog; a template that nobody connects to."""
    with new_database(server, template=urlsplit(installed_once.superuser_url).path[1:]) as url:
        backlog.load(url)
        yield url


@pytest.fixture(scope="module", params=["idle", "none", "fresh"])
def planned(request: pytest.FixtureRequest, server: str, loaded: str) -> Iterator[str]:
    """The backlog under one kind of statistics."""
    if request.param == "idle":
        yield loaded
        return
    with new_database(server, template=urlsplit(loaded).path[1:]) as url:
        if request.param == "none":
            backlog.forget_statistics(url)
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("ANALYZE")
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
    whole = name.rpartition(".")[2] in hot_statements.WHOLE
    rows = backlog.OPEN if whole else ROWS
    assert explained.faults(nodes, backlog.HOT, hot_statements.BATCH, rows) == []
