"""History past its time: only what the guards permit, and all of that."""

from typing import Any
from uuid import UUID

from idem.outbox.config.settings import SweeperSettings
from idem.sweeper.history import HistoryWalk, prune_history

DAY = 86400

AGED = """
WITH evidence AS (UPDATE idem.evidence SET at = at - interval '500 days'
                   WHERE intent_id = ANY (%(i)s)),
     events AS (UPDATE idem.events SET created_at = created_at - interval '500 days' WHERE aggregateid = ANY (%(i)s))
UPDATE idem.requests SET created_at = created_at - interval '500 days' WHERE intent_id = ANY (%(i)s)
"""
COUNTED = """
SELECT (SELECT count(*) FROM idem.evidence WHERE intent_id = %(i)s) AS evidence,
       (SELECT count(*) FROM idem.events WHERE aggregateid = %(i)s) AS events,
       (SELECT count(*) FROM idem.requests WHERE intent_id = %(i)s) AS requests
"""


async def aged(rows: Any, make: Any, n: int = 1, **options: Any) -> list[UUID]:
    """Intents that were made 500 days ago."""
    await rows.made_ago(500)
    intents: list[UUID] = await make(n, **options)
    await rows.forced(AGED, i=intents)
    return intents


async def left(rows: Any, intent: UUID) -> tuple[int, ...]:
    (counted,) = await rows.all(COUNTED, i=intent)
    return tuple(counted.values())


async def test_the_history_of_a_settled_intent_goes_after_its_retention(rows: Any) -> None:
    """IB-050: evidence, events with their marks, and requests; the intent itself is the ledger."""
    (old,) = await aged(rows, rows.completed, left=60)
    await rows.execute("INSERT INTO idem.handled_events (event_id, handler) SELECT id, 'h' FROM idem.events")
    done = await rows.sweep()
    assert (done.evidence, done.events, done.requests) == (1, 1, 1)
    assert await left(rows, old) == (0, 0, 0)
    assert await rows.value("SELECT count(*) FROM idem.handled_events") == 0
    assert await rows.value("SELECT count(*) FROM idem.intents") == 1


async def test_what_may_still_be_asked_for_is_kept(rows: Any) -> None:
    """Hazard 37: not settled, dead-lettered, or young; and a request whose proof is still to be compared."""
    young = (await rows.completed(key="young", left=60))[0]
    unsettled = (await aged(rows, rows.held, key="held", left=60))[0]
    lettered = (await aged(rows, rows.completed, key="lettered", left=60))[0]
    await rows.bury(lettered)
    compared = (await aged(rows, rows.queued, key="compared"))[0]
    await rows.prove(compared, "succeeded")
    await rows.execute(
        "WITH gone AS (DELETE FROM idem.outbox WHERE intent_id = %(i)s)"
        " UPDATE idem.intents SET state = 'completed', outcome = 'succeeded', settled_at = now() WHERE id = %(i)s",
        i=compared,
    )
    await rows.sweep()
    assert await left(rows, young) == (1, 1, 1)
    assert await left(rows, unsettled) == (1, 0, 1)
    assert await left(rows, lettered) == (1, 1, 1)
    assert await left(rows, compared) == (0, 0, 1)


async def test_younger_evidence_of_an_old_intent_is_kept(rows: Any) -> None:
    (intent,) = await aged(rows, rows.completed, left=60)
    await rows.execute("INSERT INTO idem.evidence (intent_id, source, kind) VALUES (%(i)s, 's', 'later')", i=intent)
    done = await rows.sweep()
    assert (done.evidence, await rows.kinds(intent)) == (1, ["later"])


async def test_the_walk_passes_by_what_must_be_kept(rows: Any) -> None:
    """IB-022: old intents that are not settled do not hide the settled ones behind them."""
    await aged(rows, rows.held, 30, key="kept", left=60)
    await aged(rows, rows.completed, 25, key="goes", left=60)
    gone, pages, walk = 0, 0, HistoryWalk()
    while not walk.over:
        gone += (await rows.run(prune_history, batch=10, walk=walk)).get("evidence", 0)
        pages += 1
    assert (gone, pages) == (25, 6)


async def test_webhooks_go_after_their_retention(rows: Any) -> None:
    """Hazard 37: an event is kept for as long as its provider may send it again, and while an operator needs it."""
    settled = (await rows.completed(key="settled", left=60))[0]
    lettered = (await rows.completed(key="lettered", left=60))[0]
    unsettled = (await rows.queued(key="unsettled"))[0]
    await rows.bury(lettered)
    await rows.made_ago(500)
    for name, intent in (("s", settled), ("l", lettered), ("u", unsettled), ("foreign", None), ("unmatched", None)):
        await rows.execute(
            "WITH e AS (INSERT INTO idem.webhook_events (provider, account, event_id, fate, intent_id, received_at)"
            " VALUES ('p', 'a', %(e)s, 'stored', %(i)s, now() - interval '500 days') RETURNING id)"
            " INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body, received_at)"
            " SELECT id, '{}', '', now() - interval '500 days' FROM e", e=name, i=intent,
        )  # fmt: skip
    await rows.execute(
        "INSERT INTO idem.dead_letters (webhook_event_id, reason)"
        " SELECT id, 'unmatched_webhook' FROM idem.webhook_events WHERE event_id = 'unmatched'"
    )
    keeps = SweeperSettings(webhook_retention=600 * DAY, webhook_body_retention=600 * DAY)
    done = await rows.sweeper(keeps).run_once()
    assert (done.webhook_bodies, done.webhook_events) == (0, 0)
    done = await rows.sweep()
    assert (done.webhook_bodies, done.webhook_events) == (3, 2)
    assert await rows.column("SELECT event_id FROM idem.webhook_events ORDER BY event_id") == ["l", "u", "unmatched"]


async def test_daemons_that_are_gone_are_forgotten(rows: Any) -> None:
    await rows.execute(
        "INSERT INTO idem.daemons (id, kind, host, pid, seen_at, ended_at, ended_how) VALUES"
        " ('dead', 'worker', 'h', 1, now() - interval '8 days', NULL, NULL),"
        " ('ended', 'worker', 'h', 1, now() - interval '9 days', now() - interval '8 days', 'clean'),"
        " ('reaped', 'worker', 'h', 1, now() - interval '8 days', now(), 'reaped'),"
        " ('lives', 'worker', 'h', 1, now(), NULL, NULL)"
    )  # fmt: skip
    assert (await rows.sweep()).daemons == 2
    assert [row["id"] for row in await rows.all("SELECT id FROM idem.daemons ORDER BY id")] == ["lives", "reaped"]


async def test_a_guard_that_refuses_ends_one_kind_and_no_other(rows: Any) -> None:
    """A dead letter that was opened between our look and the trigger's: the kind is left to the next pass."""
    await aged(rows, rows.completed, key="old", left=60)
    await rows.execute(
        "CREATE FUNCTION idem.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE check_violation; END'"
    )
    await rows.execute("CREATE TRIGGER a_no BEFORE DELETE ON idem.evidence FOR EACH ROW EXECUTE FUNCTION idem.no()")
    await rows.completed(3, key="expires")
    done = await rows.sweep()
    assert (done.expired, done.evidence) == (3, 0)
