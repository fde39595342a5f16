"""No table grows for ever: each has a retention that takes its rows away, or a reason why they may stay."""

from typing import Any
from uuid import UUID

import pytest

from idem import Answer
from idem.errors import OperatorRefused
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.operator.actions import cancel
from idem.outbox.settle.proofs import apply
from idem.outcomes import Outcome, Refused, Succeeded

BOUNDED = {
    "idempotency_keys": "key_ttl and answer_ttl of its operation, then sweeper.tombstone_ttl",
    "outbox": "its step is done; at rest it leaves sweeper.tombstone_ttl after its key has expired",
    "requests": "sweeper.evidence_retention",
    "evidence": "sweeper.evidence_retention",
    "events": "sweeper.evidence_retention",
    "handled_events": "they leave with their events",
    "dead_letters": "sweeper.evidence_retention after they are resolved",
    "lane_changes": "sweeper.evidence_retention, but for the newest of each lane",
    "event_handlers": "sweeper.evidence_retention after a program had them last",
    "handler_work": "they leave when the handler has run, and with a handler that is gone",
    "webhook_events": "sweeper.webhook_retention",
    "webhook_bodies": "sweeper.webhook_body_retention",
    "provider_answers": "sweeper.provider_answer_retention",
    "daemons": "SweeperSettings.daemon_retention",
    "decisions_to_count": "the sweeper adds them up in each pass",
    "tenant_usage": "tenant_counts.USAGE_RETENTION",
    "tenant_keys": "tenant_counts.UNWANTED",
}
"""By what each is bounded. The test ages a row of each, and the sweeper takes it away."""
KEPT = {
    "intents": "the ledger: it is never deleted; how a tenant's data is erased is still to be decided",
    "proofs": "work of the reconciler, which deletes what it applies; `idem doctor` fails for one that waits",
    "order_holds": "at most one for each ordering key that has been held; an open decision, which `idem doctor` names",
    "doubts": "as many as there are open rows; work of the sweeper, and `idem doctor` fails for one that waits",
    "installation": "one row",
    "alembic_version": "one row",
    "steps": "part of the ledger, as the intents: one for each ended step of a flow",
    "operations": "as many as the configuration has had",
    "account_identities": "as many as the configuration has had accounts",
    "lanes": "as many as the configuration has had accounts",
    "producers": "one for each grant of an operator",
    "api_tokens": "one for each token that an operator has made; a revoked one says who revoked it",
}
"""Why these may stay."""

TABLES = (
    "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p')"
)
TIMES = """
SELECT c.relname::text AS name, string_agg(format('%%1$I = %%1$I - interval ''500 days''', a.attname), ', ') AS moved
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'installation'
   AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'timestamptz'::regtype
 GROUP BY 1
"""
# What is about an intent, with everything that is resolved about it; and what is about none.
ABOUT = (
    "INSERT INTO idem.provider_answers (outbox_id, outcome, intent_id, attempt)"
    " SELECT gen_random_uuid(), 'o', %(i)s, 1",
    "INSERT INTO idem.dead_letters (intent_id, reason, resolved_at, resolution, resolved_by)"
    " VALUES (%(i)s, 'too_late', now(), 'closed', 'anna')",
    "WITH e AS (INSERT INTO idem.webhook_events (provider, account, event_id, fate, intent_id)"
    " VALUES ('p', 'a', gen_random_uuid()::text, 'stored', %(i)s) RETURNING id),"
    " d AS (INSERT INTO idem.dead_letters (webhook_event_id, reason, resolved_at, resolution, resolved_by)"
    " SELECT id, 'unmatched_webhook', now(), 'discarded', 'anna' FROM e)"
    " INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body) SELECT id, '{}', '' FROM e",
    "INSERT INTO idem.handled_events (event_id, handler) SELECT id, 'told' FROM idem.events WHERE aggregateid = %(i)s",
)
ALONE = (
    "INSERT INTO idem.event_handlers (name, operation) VALUES ('gone', 'pay.keyed')",
    "WITH d AS (INSERT INTO idem.dead_letters (subject, reason) VALUES ('gone', 'handler_failed') RETURNING id)"
    " INSERT INTO idem.handler_work (handler, intent_id, number, event_id, dead_letter_id, due_at)"
    " SELECT 'gone', gen_random_uuid(), 1, gen_random_uuid(), id, 'infinity'::timestamptz FROM d",
    "INSERT INTO idem.handler_work (handler, intent_id, number, event_id)"
    " SELECT 'gone', gen_random_uuid(), 1, gen_random_uuid() FROM generate_series(1, 25)",
    "INSERT INTO idem.lane_changes (provider, account, what, paused, changed_by, reason)"
    " SELECT 'p', 'a', 'calls', true, 'anna', 'r' FROM generate_series(1, 25)",
    "INSERT INTO idem.daemons (id, kind, host, pid) VALUES ('d', 'worker', 'h', 1)",
    "INSERT INTO idem.decisions_to_count (tenant_id, operation, decision) VALUES ('t', 'pay.keyed', 'accepted')",
    "INSERT INTO idem.tenant_usage (tenant_id, hour) VALUES ('u', now())",
    "INSERT INTO idem.tenant_keys (tenant_id, counted_at) VALUES ('t', now())",
)


async def counted(rows: Any) -> dict[str, int]:
    return {table: await rows.value(f"SELECT count(*) FROM idem.{table}") for table in BOUNDED}


async def age(rows: Any) -> None:
    """Everything happened 500 days earlier."""
    for table in await rows.all(TIMES):
        if table["name"] != "handler_work":
            await rows.forced(f"UPDATE idem.{table['name']} SET {table['moved']}")


async def test_every_table_is_bounded_or_has_a_reason(rows: Any) -> None:
    """Every table of the schema: a new one has to say here what bounds it."""
    tables = {row["relname"] for row in await rows.all(TABLES)}
    assert tables == BOUNDED.keys() | KEPT.keys() and BOUNDED.keys().isdisjoint(KEPT)
    await rows.made_ago(900)
    intents = [*await rows.completed(15, key="c"), *await rows.held(15, key="h")]
    for intent in intents:
        for statement in ABOUT:
            await rows.execute(statement, i=intent)
    for statement in ALONE:
        await rows.execute(statement)
    assert min((await counted(rows)).values()) > 0
    sweeper = rows.sweeper(batch=10)
    for _ in range(5):
        await age(rows)
        assert not (await sweeper.run_once()).more
    assert {table: left for table, left in (await counted(rows)).items() if left} == {"lane_changes": 1}
    assert await rows.value("SELECT count(*) FROM idem.intents") == 30


async def test_a_row_at_rest_leaves_after_its_tombstone(rows: Any) -> None:
    """P5: its client never came back, and nobody can take it up any more. What it was and how it left is on record."""
    (intent,) = await rows.held()
    sweeper = rows.sweeper()
    for left in (0, 1):
        assert (await sweeper.run_once()).abandoned == left
        if left == 0:
            assert await rows.statuses() == {"held": 1}
            await age(rows)
    assert await rows.statuses() == {}
    assert await rows.states() == {}
    assert await rows.value("SELECT state FROM idem.intents") == "failed_retryable"
    async with rows.database.connection() as connection:
        with pytest.raises(OperatorRefused, match="stays failed_retryable: nothing happened, and its key has expired"):
            await cancel(connection, rows.known, intent, by="anna", reason="r", version=None)
    (seen,) = await rows.all("SELECT * FROM idem.evidence WHERE kind = 'row_deleted'")
    told = (seen["intent_id"], seen["source"], seen["from_status"], seen["to_status"])
    assert told == (intent, "sweeper", "held", None)


async def test_a_key_that_is_refused_for_ever_lets_its_row_go(rows: Any) -> None:
    """after_expiry = "refuse": the tombstone stays, the row does not."""
    await rows.held()
    await rows.execute("UPDATE idem.idempotency_keys SET refuse_after_expiry = true")
    sweeper = rows.sweeper()
    await sweeper.run_once()
    await rows.forced("UPDATE idem.idempotency_keys SET completed_at = completed_at - interval '31 days'")
    await rows.forced("UPDATE idem.outbox SET status_since = status_since - interval '31 days'")
    assert (await sweeper.run_once()).abandoned == 1
    assert (await rows.states(), await rows.statuses()) == ({"expired": 1}, {})


async def test_a_row_that_still_waits_for_something_stays(rows: Any) -> None:
    """A stored proof, an open entry, a redrive, lost commits, a quiet time, a step before it; and a key that lives."""
    made: dict[str, UUID] = {}
    for what in ("proof", "letter", "redrive", "doubt", "quiet", "step", "free"):
        (made[what],) = await rows.held(key=what)
    await rows.forced("DELETE FROM idem.idempotency_keys")
    await rows.held(key="alive", left=60)
    await rows.prove(made["proof"], "succeeded")
    await rows.bury(made["letter"])
    later = "statement_timestamp() + interval '900 days'"
    for what, change in (
        ("redrive", f"redrive_at = {later}"), ("doubt", "doubted_since = statement_timestamp(), replay_window = 86400"),
        ("quiet", f"quiet_after = {later}"), ("step", "step = 2, step_name = 'ship'"),
    ):  # fmt: skip
        await rows.forced(f"UPDATE idem.outbox SET {change} WHERE intent_id = %(i)s", i=made[what])
    await rows.forced("UPDATE idem.outbox SET status_since = status_since - interval '500 days'")
    assert (await rows.sweep()).abandoned == 1
    assert await rows.statuses() == {"held": 7}
    assert await rows.all("SELECT FROM idem.outbox WHERE intent_id = %(i)s", i=made["free"]) == []


@pytest.mark.parametrize(
    ("said", "letters"), [(Succeeded("p-9"), ["conflict"]), (Refused(None), [])], ids=["succeeded", "refused"]
)
async def test_a_proof_that_comes_too_late_for_the_row_is_told(rows: Any, said: Outcome, letters: list[str]) -> None:
    """P4: the client was told that nothing happened. A proof of the contrary opens a conflict, and changes no state."""
    (intent,) = await rows.held()
    row = (await rows.row(intent))["id"]
    sweeper = rows.sweeper()
    for _ in range(3):
        await sweeper.run_once()
        await age(rows)
    assert await rows.statuses() == {}
    proof = StoredProof(await rows.value("SELECT gen_random_uuid()"), "webhook", said, Answer(201, b"late"))
    await rows.run(apply, row, proof, Evidence("webhook", "proof", "succeeded"), rows.known.require("pay.keyed"))
    assert await rows.letters(intent) == letters
    assert await rows.value("SELECT state FROM idem.intents") == "failed_retryable"
