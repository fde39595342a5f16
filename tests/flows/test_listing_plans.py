"""A page of the flows at one step costs what it shows, however many wait there and at other steps."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from schema import explained
from tenants.filled import STATISTICS, planned
from tenants.filled import filled as loaded

from idem.outbox.operator import intent_list, search

ROWS, LIMIT = 100_000, 50

# Nearly all wait at one step, a few at another; the rest of the ledger has ended, or is of one call.
FILL = f"""
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, plan, params, requested_at)
SELECT idem.uuid7(), 't' || n % 50, 'order', 'k' || n,
       '[{{"name": "charge", "provider": "bank", "account": "main"}},
         {{"name": "ship", "provider": "post", "account": "main"}}]', '{{}}', now()
  FROM generate_series(1, {ROWS}) AS n;
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status, operation,
                         provider, account, origin, tenant_id, step, step_name)
SELECT idem.uuid7(), i.id, now(), now(), now(), i.id, 'unknown', 'order', 'bank', 'main', 'o', i.tenant_id,
       CASE WHEN i.idempotency_key LIKE '%7777' THEN 2 ELSE 1 END,
       CASE WHEN i.idempotency_key LIKE '%7777' THEN 'ship' ELSE 'charge' END
  FROM idem.intents i;
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[str]:
    with loaded(server, template, FILL) as url:
        yield url


def asked(step: str, **filters: Any) -> dict[str, Any]:
    bounds = search.bounds(None, None)
    return {
        **dict.fromkeys(intent_list.IntentFilters.__annotations__), "limit": LIMIT, "step": step, "served": "[{}]",
        **bounds, "first": bounds["low"], "last": search.NEWEST, **filters,
    }  # fmt: skip


@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_page_of_a_step_reads_what_it_shows(filled: str, statistics: str) -> None:
    with planned(filled, statistics) as connection:
        (middle,) = connection.execute("SELECT id FROM idem.intents ORDER BY id OFFSET 50000 LIMIT 1").fetchone() or (
            UUID(int=0),
        )
        for step, last in (("charge", search.NEWEST), ("charge", middle), ("ship", search.NEWEST), ("none", middle)):
            with connection.transaction(force_rollback=True):
                nodes = explained.explain(connection, intent_list.INTENTS_AT_STEP, asked(step, last=last))
            read = sum(node.read for node in nodes if "Scan" in node.kind and node.relation in ("intents", "outbox"))
            assert read <= 4 * LIMIT, (step, last, [(n.kind, n.read, n.text) for n in nodes if n.read > LIMIT])


def test_a_page_shows_the_newest_at_the_step(filled: str) -> None:
    with planned(filled, STATISTICS[0]) as connection:
        for step in ("charge", "ship"):
            wanted = connection.execute(
                "SELECT intent_id FROM idem.outbox WHERE step_name = %s ORDER BY intent_id DESC LIMIT %s", [step, LIMIT]
            ).fetchall()
            found = connection.execute(intent_list.INTENTS_AT_STEP, asked(step)).fetchall()  # type: ignore[call-overload]
            assert [row[0] for row in found] == [row[0] for row in wanted]
