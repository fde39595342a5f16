"""Attacks on what waits beside its call: events whose body is gone, results stored while a cancel was under way."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_spine import KEYED, Spine
from fix_webhooks import Hooks, event
from settling.shop import cancelling, standing
from webhooks.refunds import again, knowing_refunds, told

from idem import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Proof, Seen
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import store
from idem.outcomes import Refused, Succeeded
from idem.reconciler import attempts
from idem.sweeper.daemon import Sweeper, SweeperSettings

WAITING = ("hint", "deferred", "early")


@pytest.fixture
async def hooks(hooks: Hooks) -> Hooks:
    """Signed events, sent to a real port, whose contract knows refunds."""
    return await knowing_refunds(hooks, fetch=False)


async def early(hooks: Hooks) -> UUID:
    """A refund of a call that the provider has accepted, and whose end is not known yet."""
    intent = await hooks.spine.sent("k", faults=["pending:600"])
    assert await hooks.fate(event(await hooks.key(intent), "refunded")) == "early"
    return intent


async def looked_again(hooks: Hooks) -> tuple[Any, Any, bool]:
    """Let the waiting event be tried now: its fate and call, and whether it waits for an hour or so."""
    await again(hooks)
    kept = await hooks.spine.one(
        "SELECT fate, intent_id, retry_at > now() + interval '50 minutes' AS later FROM idem.webhook_events"
        " WHERE event_id = 'evt_1'"
    )
    return kept["fate"], kept["intent_id"], kept["later"]


@pytest.mark.parametrize("fate", ["early", "deferred"])
async def test_a_waiting_event_whose_body_is_gone_calls_somebody(hooks: Hooks, fate: str) -> None:
    """A refund that nobody would ever hear of."""
    spine, intent = hooks.spine, await early(hooks)
    body = await spine.one("SELECT * FROM idem.webhook_bodies")
    await spine.execute("UPDATE idem.webhook_events SET fate = %(v)s", v=fate)
    await spine.execute("DELETE FROM idem.webhook_bodies")
    for _ in range(2):
        assert await looked_again(hooks) == (fate, intent, True)
        assert await spine.letters(intent) == ["event_failed"]
    letter = await spine.one("SELECT details, webhook_event_id FROM idem.dead_letters")
    assert letter["details"]["error"].startswith("its body can no longer be read")
    assert letter["webhook_event_id"] == body["webhook_event_id"]
    await spine.execute("INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body) VALUES (%(i)s, '{}', %(b)s)",
        i=body["webhook_event_id"], b=body["body"],
    )  # fmt: skip
    reference = spine.bank.log.payments()[-1].id
    assert await hooks.fate(event(await hooks.key(intent), reference=reference), "evt_2") == "applied"
    assert (await looked_again(hooks))[:2] == ("later_fact", intent)
    assert [kind for kind, _ in await told(hooks, intent)] == ["completed", "later_fact"]
    assert await spine.letters(intent) == []


@pytest.mark.parametrize("body", [b"no JSON", b'{"type": "payment.refunded", "data": {}}'])
async def test_a_waiting_event_that_the_contract_reads_no_more_calls_somebody(hooks: Hooks, body: bytes) -> None:
    intent = await early(hooks)
    await hooks.spine.execute("UPDATE idem.webhook_bodies SET body = %(b)s", b=body)
    assert await looked_again(hooks) == ("early", intent, True)
    assert await hooks.spine.letters(intent) == ["event_failed"]


async def test_whoever_closes_the_entry_gives_the_event_up(hooks: Hooks) -> None:
    """Else the entry would be there again within the hour, for ever."""
    spine, intent = hooks.spine, await early(hooks)
    await spine.execute("DELETE FROM idem.webhook_bodies")
    await looked_again(hooks)
    await hooks.desk.close(await hooks.desk.letter(intent, "event_failed"))
    assert (await looked_again(hooks))[0] == "noted"
    assert await spine.letters(intent) == []
    said = await spine.one("SELECT details FROM idem.evidence WHERE kind = 'dead_letter_closed'")
    assert UUID(said["details"]["event_given_up"])


async def test_the_body_of_a_waiting_event_is_kept(hooks: Hooks) -> None:
    """However old: it is all that says what is still to be told. That of an event which is gone is not kept."""
    spine, intent = hooks.spine, await early(hooks)
    old = (
        "WITH e AS (INSERT INTO idem.webhook_events (id, provider, account, event_id, fate, intent_id, received_at)"
        " VALUES (overlay(idem.uuid7()::text PLACING '01700000' FROM 1 FOR 8)::uuid, 'keyed', 'keyed', %(v)s, %(v)s,"
        " %(i)s, now() - interval '500 days') RETURNING id, received_at)"
        " INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body, received_at)"
        " SELECT id, '{}', '', received_at FROM e"
    )
    for fate in (*WAITING, "agrees", "ignored"):
        await spine.execute(old, v=fate, i=intent)
    await spine.execute("DELETE FROM idem.webhook_events WHERE fate = 'ignored'")
    done = await Sweeper(spine.database, spine.catalogue, SweeperSettings()).run_once()
    assert done.webhook_bodies == 2
    left = await spine.all(
        "SELECT e.fate FROM idem.webhook_bodies b JOIN idem.webhook_events e ON e.id = b.webhook_event_id"
        " WHERE e.received_at < now() - interval '400 days' ORDER BY 1"
    )
    assert [row["fate"] for row in left] == sorted(WAITING)


async def between(spine: Spine, monkeypatch: pytest.MonkeyPatch, source: str, proof: Proof) -> UUID:
    """A result that is stored while the cancel leaves: the cancel began before it could be seen."""
    cancelling(spine)
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.advance(KEYED.flight_limit + 10)
    row, begin = await spine.row(intent), attempts.begin_cancel

    async def begin_and_store(connection: Any, taken: Any, rule: Any) -> int | None:
        attempt = await begin(connection, taken, rule)
        await keep(spine, row["id"], source, proof)
        return attempt

    monkeypatch.setattr(attempts, "begin_cancel", begin_and_store)
    await spine.reconcile()
    assert standing(spine) == 0
    return intent


async def keep(spine: Spine, row_id: UUID, source: str, proof: Proof) -> None:
    attempt = 1 if source == "worker" else None
    found = StoredProof(uuid4(), source, proof, Answer(201, b"{}"), 201, attempt)
    assert await spine.run(store, row_id, found, Evidence(source, "late_result", seen=Seen(201))) == "stored"


@pytest.mark.parametrize("proof", [Succeeded("pay_1"), Refused("pay_1")])
async def test_a_result_stored_while_the_cancel_leaves_counts_for_nothing(
    spine: Spine, monkeypatch: pytest.MonkeyPatch, proof: Proof
) -> None:
    intent = await between(spine, monkeypatch, "worker", proof)
    assert (await spine.key(intent))["state"] == "failed_retryable", "told as done, and nothing stands"
    assert await spine.all("SELECT 1 FROM idem.proofs") == []
    assert ("worker", "late_result_stored", None) in await spine.evidence(intent)
    await spine.reconcile(after=200)
    await spine.work()
    assert ((await spine.key(intent))["state"], standing(spine)) == ("completed", 1)
    assert await spine.letters(intent) == []


async def test_what_an_event_shows_against_the_cancel_is_for_a_person(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell whether it was before the cancel or after it."""
    intent = await between(spine, monkeypatch, "webhook", Succeeded("pay_1"))
    await spine.expect(intent, status="unknown", letters=["conflict"])


@pytest.mark.parametrize("proof", [Succeeded("pay_1"), Refused("pay_1")])
async def test_a_result_stored_after_the_cancel_speaks_of_what_it_has_undone(spine: Spine, proof: Proof) -> None:
    """Its row was locked by its client's own transaction; the next pass finds it."""
    cancelling(spine)
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.reconcile(after=KEYED.flight_limit + 10)
    row = await spine.row(intent)
    await keep(spine, row["id"], "worker", proof)
    await spine.reconcile()
    await spine.expect(intent, key="failed_retryable", proofs=0)
    assert ("worker", "stored_proof_undone") in [each[:2] for each in await spine.evidence(intent)]
    await spine.reconcile(after=200)
    await spine.work()
    assert ((await spine.key(intent))["state"], standing(spine)) == ("completed", 1)
    await keep(spine, row["id"], "worker", proof)
    await spine.reconcile()
    assert await spine.letters(intent) == []
