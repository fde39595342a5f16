"""Each way of asking for an intent reads by its index, whatever the statistics say and however frequent the text is."""

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from schema import explained
from tenants.filled import STATISTICS, planned
from tenants.filled import filled as loaded

from idem.outbox.api import intents, tenant_search
from idem.outbox.operator import search

ROWS = int(os.environ.get("IDEM_TEST_SEARCHED", "40000"))
OFTEN, LIMIT, SCANNED = "often", 20, 200

# Two of three intents have one label, one reference and one key; every other has its own.
FILL = """
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, provider_reference, label,
                          params, requested_at, state, outcome, settled_at)
SELECT idem.uuid7(), 't' || n % 2, 'pay', word, 'bank', 'main', word, word, '{}', now(),
       CASE WHEN n % 1000 = 0 THEN 'unknown' ELSE 'completed' END, CASE WHEN n % 1000 > 0 THEN 'succeeded' END,
       CASE WHEN n % 1000 > 0 THEN now() END
  FROM generate_series(1, %(rows)s) AS n CROSS JOIN LATERAL (
       SELECT CASE WHEN n % 3 > 0 THEN 'often' ELSE 'word ' || n END) AS w (word)
"""
LETTERS = """
INSERT INTO idem.dead_letters (id, reason, subject, details)
SELECT idem.uuid7(), 'discrepancy', 'object ' || n, '{}' FROM generate_series(1, %(rows)s / 10) AS n
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[str]:
    with loaded(server, template, *(each.replace("%(rows)s", str(ROWS)) for each in (FILL, LETTERS))) as url:
        yield url


def asked() -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Each way of asking: a name, its statement, the parameters, and how many rows it may read."""
    for text, most in ((OFTEN, SCANNED), ("word 3", LIMIT), ("no such text", LIMIT)):
        for word, statement, parameters in search.ways(text):
            yield f"find {word} {text}", statement, parameters | {"scanned": SCANNED, "limit": LIMIT}, most
        for name, state, other in product(
            ("BY_REFERENCE", "BY_LABEL"), (None, "unknown", "failed_retryable"), (None, "x")
        ):
            parameters = {
                "tenant": "t1", "reference": text, "label": text, "state": state, "operation": other,
                "low": intents.OLDEST, "before": intents.NEWEST, "scanned": SCANNED, "limit": LIMIT,
            }  # fmt: skip
            yield f"search {name} {text} {state} {other}", getattr(tenant_search, name), parameters, most
    for text in ("01a2", "2026-11-28", "9999-01-01"):
        for word, statement, parameters in search.ways(text):
            yield f"find {word} {text}", statement, parameters | {"scanned": SCANNED, "limit": LIMIT}, SCANNED


@pytest.mark.parametrize("statistics", STATISTICS)
def test_each_way_of_asking_reads_by_its_index(filled: str, statistics: str) -> None:
    with planned(filled, statistics) as connection:
        for name, statement, parameters, most in asked():
            with connection.transaction(force_rollback=True):
                nodes = explained.explain(connection, statement, parameters)
            # Of the table, not of what was looked at once.
            read = sum(node.read for node in nodes if "Scan" in node.kind and node.relation)
            assert read <= most, (name, [(node.kind, node.read, node.text) for node in nodes])


def test_what_is_found_is_right(filled: str) -> None:
    with psycopg.connect(filled, autocommit=True) as connection:
        newest = connection.execute(
            "SELECT id FROM idem.intents WHERE idempotency_key = 'often' ORDER BY id DESC LIMIT %s", [LIMIT]
        ).fetchall()
        for word, statement, parameters in search.ways(OFTEN):
            found = connection.execute(statement, parameters | {"scanned": ROWS, "limit": LIMIT}).fetchall()  # type: ignore[call-overload]
            assert found == newest, word
