"""Queued rows that are too old to be started."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.lane_scopes import LaneScope
from idem.outbox.worker.claim import claim
from idem.sweeper.too_old import hold_too_old


async def test_a_queued_row_that_is_too_old_comes_to_rest(rows: Any) -> None:
    """Hazards 44, 62: proven not sent, with a dead letter and the client free to send its request again."""
    statuses = ("pending", "waiting", "unfrozen")
    old = {status: (await rows.queued(key=status, start=-1))[0] for status in statuses}
    change = "UPDATE idem.outbox SET status = %(s)s, ordering_group = 'g', ordering_key = 'o' WHERE intent_id = %(i)s"
    for status, intent in old.items():
        await rows.forced(change, s=status, i=intent)
    (young,) = await rows.queued(key="young")
    done = await rows.sweep()
    assert (done.too_old, done.swept) == (3, 0)
    for intent in old.values():
        key = await rows.key(intent)
        assert (await rows.row(intent))["status"] == "held"
        assert (key["state"], key["last_error_code"]) == ("failed_retryable", "too_late")
        assert await rows.letters(intent) == ["too_late"]
        assert await rows.kinds(intent) == ["accepted", "too_old"]
    assert (await rows.row(young))["status"] == "pending"


async def test_where_the_client_retries_no_operator_is_asked(rows: Any) -> None:
    """Hazard 29: `retry = "client"`."""
    operation = replace(rows.known.operations["pay.keyed"], retry="client")
    rows.known = Catalogue(rows.known.environment, rows.known.providers, {"pay.keyed": operation})
    (intent,) = await rows.queued(start=-1)
    await rows.sweep()
    assert ((await rows.row(intent))["status"], await rows.letters(intent)) == ("held", [])


async def test_a_row_of_another_node_is_held_by_its_own_time(rows: Any) -> None:
    """IB-023: how old is too old stands in the row, not in this node's configuration."""
    (old,) = await rows.queued(key="old", operation="pay.elsewhere", provider="elsewhere", start=-1)
    (young,) = await rows.queued(key="young", operation="pay.elsewhere", provider="elsewhere")
    await rows.sweep()
    assert ((await rows.row(old))["status"], (await rows.row(young))["status"]) == ("held", "pending")


async def test_a_row_with_a_stored_proof_is_left_to_the_reconciler(rows: Any) -> None:
    """Hazards 3, 53: nobody is told that nothing happened while a proof says that it did."""
    (intent,) = await rows.queued(start=-1)
    (other,) = await rows.queued(key="other", start=-1)
    await rows.prove(intent, "succeeded")
    assert (await rows.sweep()).too_old == 1
    assert ((await rows.row(intent))["status"], (await rows.row(other))["status"]) == ("pending", "held")


async def test_rows_that_others_hold_do_not_hide_the_ones_behind_them(rows: Any, db_url: str) -> None:
    """IB-022."""
    await rows.queued(100, key="locked", start=-60)
    await rows.queued(30, key="free", start=-1)
    with psycopg.connect(db_url) as other:
        other.execute("SELECT id FROM idem.outbox ORDER BY start_before LIMIT 100 FOR UPDATE")
        assert (await rows.sweeper(batch=100).run_once()).too_old == 30


async def test_a_claim_and_the_holding_of_a_row_have_one_winner(rows: Any) -> None:
    """A row that is just becoming too old while workers claim: claimed or held, never both, and none twice."""
    await rows.queued(400)
    # Each row ends within the next half second.
    await rows.execute(
        "UPDATE idem.outbox SET start_before = statement_timestamp() + random() * interval '500 milliseconds'"
    )
    lane = LaneScope("keyed", "keyed", "http://127.0.0.1:9", "test", ("pay.keyed",))
    claimed: list[Any] = []

    async def work() -> None:
        while await rows.value("SELECT count(*) FROM idem.outbox WHERE status = 'pending'"):
            claimed.extend(await rows.run(claim, lane, token=uuid4(), holder="w", lease=60, limit=3, now=0.0))

    async def hold() -> int:
        held = 0
        while await rows.value("SELECT count(*) FROM idem.outbox WHERE status = 'pending'"):
            held += len(await rows.run(hold_too_old, rows.known, batch=10))
        return held

    _, first, second = await asyncio.gather(work(), hold(), hold())
    assert len({c.row.id for c in claimed}) == len(claimed)
    assert len(claimed) + first + second == 400
    assert await rows.statuses() == {
        status: n for status, n in {"claimed": len(claimed), "held": first + second}.items() if n
    }
