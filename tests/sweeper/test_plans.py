"""Plans over 100,000 rows: no statement of the sweeper reads a hot table whole, whatever the statistics say."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from schema.explained import nodes

from idem.outbox.settle import change_pages, expired_leases
from idem.sweeper import abandoned, due_passes, due_retention, expired_keys, history, records, too_old, unasked

N = 100_000
SPINE = ("intents", "idempotency_keys", "outbox", "requests", "proofs", "evidence", "events")
OTHERS = ("dead_letters", "webhook_events", "webhook_bodies", "handled_events", "handler_work")
PICKS = ("EXPIRED", "TOO_OLD", "PAST_KEYS", "NOT_REDRIVEN", "ABANDONED", "DUE_PASSES", "DUE_RETENTION")
STATEMENTS = {
    name: getattr(module, name)
    for module in (
        expired_leases,
        too_old,
        unasked,
        change_pages,
        expired_keys,
        history,
        abandoned,
        due_passes,
        due_retention,
        records,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str) and re.match(r"\s*(WITH|SELECT|UPDATE|DELETE)\b", value)
}
VALUES = {
    "at": "'2020-01-01'", "row": "gen_random_uuid()", "batch": "500", "ids": "ARRAY[gen_random_uuid()]",
    "intents": "ARRAY[gen_random_uuid()]", "ttl": "60", "after": "gen_random_uuid()", "age": "86400",
    "unasked": "86400", "stated": "'{}'", "intent": "gen_random_uuid()", "busy": "ARRAY['t']", "handler": "'h'",
    **dict.fromkeys(("bodies", "events", "answers", "daemons", "usage"), "86400"),
}  # fmt: skip
TYPES = {
    "at": "timestamptz", "row": "uuid", "batch": "bigint", "ids": "uuid[]", "intents": "uuid[]",
    "ttl": "float8", "after": "uuid", "age": "float8", "unasked": "float8", "intent": "uuid", "busy": "text[]",
    "handler": "text", "stated": "text",
    **dict.fromkeys(("bodies", "events", "answers", "daemons", "usage"), "float8"),
}  # fmt: skip


def explained(connection: psycopg.Connection[Any], statement: str) -> dict[str, Any]:
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    prepared = re.sub(r"%\((\w+)\)s", lambda m: f"${names.index(m[1]) + 1}", statement)
    connection.execute(f"PREPARE one ({', '.join(TYPES[n] for n in names)}) AS {prepared}".replace(" () ", " "))
    values = f"({', '.join(VALUES[n] for n in names)})" if names else ""
    (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE one {values}").fetchone() or ()
    connection.execute("DEALLOCATE one")
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def check(url: str, when: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off"):
            connection.execute(f"SET {setting}")  # as the daemons' sessions have it
        for name, statement in STATEMENTS.items():
            for node in nodes(explained(connection, statement)):
                relation = node.get("Relation Name")
                scans = node["Node Type"] == "Seq Scan" and relation in SPINE + OTHERS
                assert not scans, f"{when}: {name} reads {relation} whole"
                # A hash join would read one side whole as soon as the tables are big enough; CTEs are small.
                if node["Node Type"] == "Hash":
                    (side,) = node["Plans"]
                    assert side["Node Type"] == "CTE Scan", f"{when}: {name} hashes {side}"
                if name in PICKS:
                    # A page is read in the index's own order: a sort would read all that is behind it, page by page.
                    assert "Sort" not in node["Node Type"], (when, name)


HISTORY = Path(__file__).with_name("plans_history.sql").read_text()
BUSY = """
WITH held AS (
    UPDATE idem.outbox SET status = 'held' WHERE id IN (SELECT id FROM idem.outbox ORDER BY id DESC LIMIT 30000)
), claimed AS (
    UPDATE idem.outbox SET status = 'claimed', claim_token = gen_random_uuid(), claimed_by = 'w', claimed_at = now(),
           claimed_until = now()
     WHERE id IN (SELECT id FROM idem.outbox LIMIT 10000))
UPDATE idem.idempotency_keys SET state = 'completed', response_status = 201, response_headers = '{}',
       response_body = '', completed_at = now(), expires_at = now()
 WHERE intent_id IN (SELECT intent_id FROM idem.outbox OFFSET 50000)
"""


@pytest.mark.campaign
async def test_no_statement_reads_a_table_whole(rows: Any, db_url: str) -> None:
    """perf.md, trap 2: generic plans, without statistics, with fresh ones, and with those of an idle queue."""
    assert len(STATEMENTS) >= 12 and set(PICKS) <= set(STATEMENTS)
    for table in ("outbox", "idempotency_keys", "evidence", "requests", "intents"):
        await rows.execute(f"ALTER TABLE idem.{table} SET (autovacuum_enabled = off)")
    await rows.many(N)
    await rows.forced(HISTORY, n=N // 5)
    check(db_url, "never analyzed")
    await rows.execute("ANALYZE")
    check(db_url, "analyzed while idle")
    await rows.forced(BUSY)
    check(db_url, "busy, analyzed while idle")
    await rows.execute("ANALYZE")
    check(db_url, "analyzed while busy")
