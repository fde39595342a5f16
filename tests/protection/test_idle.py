"""A paused lane costs an idle poll nothing: of 100,000 rows that wait there, the claim and the claim read none."""

from typing import Any

import psycopg
import pytest
from schema import explained, hot_statements

BACKLOG = """
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, first_sent_at, replay_window,
                         provider_key, status, operation, provider, account, origin, tenant_id)
SELECT gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 s', now() + interval '1 day', now(),
       CASE WHEN %(status)s = 'unknown' THEN now() END, 86400, gen_random_uuid(), %(status)s, 'pay', 'p0', 'a0',
       'https://bank.test', 't' || n %% 7
  FROM generate_series(1, 100000) AS n
"""
PAUSE = "INSERT INTO idem.lanes (provider, account, paused, lookups_paused) VALUES ('p0', %s, true, true)"
LANE = {**hot_statements.LANE, **hot_statements.HOLD, "concurrency": 50, "asking": 5}
CLAIM = {**LANE, "turns": 200, "after": ""}
CLAIM_DUE = {**LANE, "replays": True, "first": True, "window": 86000.0, "quiet": 180.0, "flight": 120.0, "pause": 60.0,
        "lookups": True, "later": 2}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "status"), [("claim.CLAIM", CLAIM, "pending"), ("due.CLAIM_DUE", CLAIM_DUE, "unknown")]
)
@pytest.mark.parametrize("account", ["a0", ""], ids=["one", "all"])
@pytest.mark.parametrize("concurrency", [None, 50])
def test_no_row_of_a_paused_lane_is_read(
    db_url: str, name: str, parameters: dict[str, Any], status: str, account: str, concurrency: int | None
) -> None:
    statement = hot_statements.statements()[name]
    parameters = parameters | {"concurrency": concurrency, "environment": "test"}
    with psycopg.connect(db_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("ALTER TABLE idem.outbox SET (autovacuum_enabled = off)")
        connection.execute(BACKLOG, {"status": status})
        connection.execute("SET session_replication_role = origin")
        # What this transaction wrote itself would have its foreign keys checked again.
        connection.commit()
        going = explained.explain(connection, statement, parameters)
        assert sum(node.read for node in going if node.relation == "outbox") > 0
        connection.rollback()
        connection.execute(PAUSE, (account,))
        paused = explained.explain(connection, statement, parameters)
        assert sum(node.read for node in paused if node.relation == "outbox") == 0
        assert explained.buffers(connection, statement, parameters) < 60
