"""A backlog of 100,000 local steps costs the renderer of calls nothing, and those who take them read a batch."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from schema.explained import explain

from idem.outbox.worker import local_rows, missing_steps, unfrozen

BACKLOG = """
SET session_replication_role = replica;
UPDATE idem.installation SET environment = 'test';
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, plan, params, requested_at)
SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 't' || n % 50, 'order', 'k' || n,
       '[{"name": "ride", "provider": "local", "account": "local"}]', '{}', now()
  FROM generate_series(1, 100000) AS n;
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status, operation,
                         provider, account, origin, tenant_id, step, step_name)
SELECT i.id, i.id, now() - interval '2 hours', now() + interval '1 day', now(), i.id, 'unfrozen', 'order', 'local',
       'local', 'local://', i.tenant_id, 1, 'ride'
  FROM idem.intents i;
SET session_replication_role = origin;
"""
SOURCES = {"calls": ["order charge"], "providers": ["p"], "accounts": ["a"], "origins": ["https://b"]}
TURNS = {"environment": "test", "limit": 20, "after": "", "turns": 100}
MISSING = {"wait": timedelta(hours=1), "operations": ["order"], "calls": ["order charge"], "environment": "test",
           "limit": 20}  # fmt: skip
TAKE = {"operations": ["order"], "steps": ["ride"], "limits": [2], "environment": "test", "running": [], "again": 2.0}


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_backlog_of_functions(db_url: str, analyzed: bool) -> None:
    with psycopg.connect(db_url, prepare_threshold=None) as connection:
        connection.execute(BACKLOG)
        connection.commit()
        if analyzed:
            connection.execute("ANALYZE")
            connection.commit()
        statements: tuple[tuple[str, Any], ...] = (
            (unfrozen.WAITS, SOURCES), (unfrozen.PICK, {**SOURCES, **TURNS}), (missing_steps.MISSING, MISSING),
            (local_rows.TAKE, TAKE),
        )  # fmt: skip
        for statement, given in statements:
            read = max(node.read for node in explain(connection, statement, given))
            assert read <= 200, (statement, read)
            connection.rollback()
