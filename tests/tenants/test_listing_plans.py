"""A page of a tenant's list costs what it shows: not what other tenants have, nor the tenant's own other rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from schema import explained
from tenants.filled import STATISTICS, planned
from tenants.filled import filled as loaded

from idem.outbox.api import intents

OTHERS, OWN, LIMIT = 120_000, 30_000, 20
STATES = ("in_progress", "unknown", "failed_retryable", "completed")

# A tenant with a backlog in every state, and one whose rows are nearly all of one operation and one state.
FILL = """
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, params, requested_at, state,
                          outcome, settled_at)
SELECT idem.uuid7(), t.tenant, CASE WHEN n % t.rare = 0 THEN 'refund' ELSE 'pay' END, 'k' || n, 'bank', 'main', '{{}}',
       now(), s.state, CASE WHEN s.state = 'completed' THEN 'succeeded' END,
       CASE WHEN s.state = 'completed' THEN now() END
  FROM (VALUES ('{name}', {rows}, {rare}, {often})) AS t (tenant, rows, rare, often)
 CROSS JOIN generate_series(1, t.rows) AS n
 CROSS JOIN LATERAL (SELECT CASE WHEN n % t.often <> 0 THEN 'in_progress'
                                 ELSE (ARRAY['unknown', 'failed_retryable', 'completed'])[n / t.often % 3 + 1] END
                    ) AS s (state);
"""
OPEN = """
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status, operation,
                         provider, account, origin, tenant_id)
SELECT idem.uuid7(), i.id, now(), now(), now(), i.id,
       CASE i.state WHEN 'unknown' THEN 'unknown' WHEN 'in_progress' THEN 'pending' ELSE 'held' END, i.operation,
       'bank', 'main', 'o', i.tenant_id
  FROM idem.intents i WHERE i.state <> 'completed'
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[str]:
    others, own = {"name": "big", "rows": OTHERS, "rare": 2}, {"name": "small", "rows": OWN, "rare": 1001}
    fills = FILL.format(**others, often=2), FILL.format(**own, often=2003), OPEN
    with loaded(server, template, *fills) as url:
        yield url


FILTERS = list(product([None, *STATES], [None, "pay", "refund", "none"]))


def asked(state: str | None, operation: str | None, before: UUID) -> tuple[str, dict[str, Any]]:
    """The statement and the parameters that `ledger.intents` chooses."""
    chosen: list[tuple[str, dict[str, Any]]] = []

    class Cursor:
        async def execute(self, query: str, parameters: dict[str, Any]) -> Cursor:
            chosen.append((query, parameters))
            return self

        async def fetchall(self) -> list[Any]:
            return []

    class Connection:
        def cursor(self, **_: Any) -> Cursor:
            return Cursor()

    listing: Any = intents.intents(Connection(), "small", state=state, operation=operation, before=before, limit=LIMIT)  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        listing.send(None)
    return chosen[0]


@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_page_reads_what_it_shows_with_every_filter(filled: str, statistics: str) -> None:
    with planned(filled, statistics) as connection:
        (middle,) = connection.execute(
            "SELECT id FROM idem.intents WHERE tenant_id = 'small' ORDER BY id OFFSET 15000 LIMIT 1"
        ).fetchone() or (None,)
        for (state, operation), before in product(FILTERS, (intents.NEWEST, middle)):
            query, parameters = asked(state, operation, before)
            with connection.transaction(force_rollback=True):
                nodes = explained.explain(connection, query, parameters)
            read = sum(node.read for node in nodes if "Scan" in node.kind and node.relation in ("intents", "outbox"))
            # A page of each of four states, and the rows themselves with what stands beside them.
            costly = [(n.kind, n.read, n.text) for n in nodes if n.read > 500]
            assert read <= 8 * LIMIT, (state, operation, before, costly)


@pytest.mark.parametrize("newest", [True, False])
def test_a_page_shows_the_newest_of_what_is_asked_for(filled: str, newest: bool) -> None:
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("ANALYZE")
        own = connection.execute(
            "SELECT id, state, operation FROM idem.intents WHERE tenant_id = 'small' ORDER BY id DESC"
        ).fetchall()
        before = intents.NEWEST if newest else own[15_000][0]
        for state, operation in FILTERS:
            query, parameters = asked(state, operation, before)
            found = [row[0] for row in connection.execute(sql.SQL(query), parameters)]  # type: ignore[arg-type]
            wanted = [
                each for each, its_state, its_operation in own
                if each < before and state in (None, its_state) and operation in (None, its_operation)
            ]  # fmt: skip
            assert found == wanted[:LIMIT], (state, operation)
