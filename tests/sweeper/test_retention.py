"""Keys past their time, and what must never go."""

from typing import Any

import psycopg
import pytest

from idem import Answer
from idem.outbox.config.settings import SweeperSettings
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply
from idem.outcomes import Succeeded

PAST = "UPDATE idem.idempotency_keys SET expires_at = statement_timestamp() - interval '1 second'"
AGE = "SELECT extract(epoch FROM expires_at - statement_timestamp())::float8 FROM idem.idempotency_keys"


@pytest.mark.parametrize("state", ["completed", "failed_retryable"])
async def test_a_key_past_its_time_becomes_a_tombstone_and_then_goes(rows: Any, state: str) -> None:
    """Hazards 19, 25: the answer goes first, the intent keeps its own state, and both steps are on record."""
    (intent,) = await (rows.completed() if state == "completed" else rows.held())
    sweeper = rows.sweeper(SweeperSettings(tombstone_ttl=86400))
    done = await sweeper.run_once()
    assert (done.expired, done.deleted) == (1, 0)
    key = await rows.key(intent)
    assert (key["state"], key["response_status"], key["response_headers"], key["response_body"]) == (
        "expired", None, None, None,
    )  # fmt: skip
    assert key["completed_at"] is not None
    assert await rows.value(AGE) == pytest.approx(86400, abs=30)
    (seen,) = await rows.all("SELECT * FROM idem.evidence WHERE kind = 'expired'")
    assert (seen["intent_id"], seen["source"], seen["from_state"], seen["to_state"]) == (
        intent, "sweeper", state, "expired",
    )  # fmt: skip
    assert (await sweeper.run_once()).deleted == 0
    await rows.execute(PAST)
    assert (await sweeper.run_once()).deleted == 1
    assert await rows.states() == {}
    assert await rows.value("SELECT state FROM idem.intents") == state
    left = ["row_deleted"] if state == "failed_retryable" else []
    assert [kind for kind in await rows.kinds(intent) if kind != "accepted"] == ["expired", "deleted", *left]


async def test_a_key_inside_its_time_is_kept(rows: Any) -> None:
    await rows.completed(key="c", left=60)
    await rows.held(key="h", left=60)
    assert (await rows.sweep()).expired == 0


async def test_what_is_open_is_never_expired_or_deleted(rows: Any) -> None:
    """IB-050, hazards 6, 19: running, unknown, dead-lettered, about to be redriven, proven, or half done."""
    await rows.queued(key="running")
    await rows.claimed(key="claimed", left=60)
    await rows.claimed(key="unknown")
    for make, key in ((rows.completed, "lettered"), (rows.held, "rejected")):
        (intent,) = await make(key=key)
        await rows.bury(intent)
    (tombstone,) = await rows.completed(key="tombstone")
    await rows.held(key="redriven", redrive=60)
    (proven,) = await rows.held(key="proven")
    await rows.prove(proven, "succeeded")
    (half,) = await rows.held(key="half done", left=60)
    await rows.forced("UPDATE idem.outbox SET step = 2, step_name = 'ship' WHERE intent_id = %(i)s", i=half)
    sweeper = rows.sweeper()
    assert (await sweeper.run_once()).expired == 1  # the tombstone alone
    await rows.bury(tombstone)
    await rows.execute(PAST)
    for _ in range(2):
        done = await sweeper.run_once()
        assert (done.expired, done.deleted) == (0, 0)
    assert await rows.states() == {
        "in_progress": 2, "unknown": 1, "completed": 1, "failed_retryable": 4, "expired": 1,
    }  # fmt: skip


async def test_rows_and_keys_that_others_hold_are_passed_by(rows: Any, db_url: str) -> None:
    """Never blocking live traffic, never blocked by it, and IB-022."""
    await rows.held(100, key="held", left=-60)
    await rows.completed(100, key="locked", left=-60)
    await rows.completed(20, key="free")
    sweeper = rows.sweeper(batch=100)
    with psycopg.connect(db_url) as other:
        other.execute("SELECT id FROM idem.outbox FOR UPDATE")
        other.execute("SELECT 1 FROM idem.idempotency_keys WHERE idempotency_key LIKE 'locked%' FOR UPDATE")
        assert (await sweeper.run_once()).expired == 20
    assert (await sweeper.run_once()).expired == 200


async def test_a_late_proof_after_expiry_still_settles_the_intent(rows: Any) -> None:
    """Hazard 19: the tombstone stays as it is."""
    (intent,) = await rows.held()
    await rows.sweep()
    proof = StoredProof(await rows.value("SELECT gen_random_uuid()"), "webhook", Succeeded("p"), Answer(201, b"late"))
    row, evidence = await rows.row(intent), Evidence("webhook", "proof", "succeeded")
    assert await rows.run(apply, row["id"], proof, evidence, rows.known.require("pay.keyed")) == "applied"
    assert await rows.value("SELECT state FROM idem.intents") == "completed"
    assert (await rows.key(intent))["state"] == "expired"
