"""Later facts: refunds, disputes and bounces are kept and told once; they change no state and prove nothing."""

import pytest
from fix_webhooks import Hooks, event
from settling.shop import cancelling
from webhooks.refunds import again, knowing_refunds, made, told

from idem.outcomes import NotExecuted
from idem.reconciler.webhooks import waiting_events


@pytest.fixture
async def refunds(hooks: Hooks) -> Hooks:
    """An endpoint whose contract knows refunds; it asks before it believes an end."""
    return await knowing_refunds(hooks, fetch=True)


async def test_hazard_17_a_refund_is_told_and_changes_nothing(refunds: Hooks) -> None:
    intent = await refunds.desk.completed("k")
    before = await refunds.spine.key(intent)
    version = await refunds.desk.version(intent)
    content = event(await refunds.key(intent), "refunded")
    assert await refunds.fate(content) == "later_fact"
    assert await refunds.fate(content) == "duplicate"
    assert await refunds.spine.key(intent) == before
    assert (await refunds.desk.state(intent), await refunds.desk.version(intent)) == (("completed", None), version)
    (_, (kind, payload)) = await told(refunds, intent)
    assert kind == "later_fact"
    shown = {"status": "refunded", "fields": {"refunded": 100}, "provider_reference": "pay_1"}
    assert payload.items() >= {**shown, "state": "completed", "outcome": "succeeded"}.items()
    assert ("webhook", "later_fact", None) in await refunds.spine.evidence(intent)
    assert await refunds.spine.all("SELECT 1 FROM idem.dead_letters") == []
    # Another event of the same object is another fact.
    assert await refunds.fate(content, "evt_2") == "later_fact"
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact", "later_fact"]


async def test_a_refund_before_the_success_is_no_proof_and_is_told_after_it(refunds: Hooks) -> None:
    """Nobody hears that something was refunded before they hear that it was paid."""
    spine, (intent, reference) = refunds.spine, await refunds.lost()
    key = await refunds.key(intent)
    assert await refunds.fate(event(key, "refunded", reference)) == "hint"
    assert await refunds.desk.state(intent) == ("unknown", "unknown")
    assert await told(refunds, intent) == []
    assert ("webhook", "later_fact", None) in await spine.evidence(intent)
    assert await refunds.fate(event(key, "succeeded", reference), "evt_2") == "hint"
    await spine.reconcile()
    assert await refunds.desk.state(intent) == ("completed", None)
    await again(refunds)
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact"]
    assert (await refunds.kept())["fate"] == "later_fact"
    assert [each for each in await spine.evidence(intent) if each[1] == "later_fact"] == [
        ("webhook", "later_fact", None)
    ]


async def test_a_refund_of_nobodys_payment_is_unmatched(refunds: Hooks) -> None:
    assert await refunds.fate(event(None, "refunded", "pay_x")) == "unmatched"


async def test_a_locked_intent_is_not_waited_for(refunds: Hooks) -> None:
    """Somebody's own transaction holds it: the fact is kept, answered 2xx and told afterwards."""
    intent = await refunds.desk.completed("k")
    async with refunds.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.intents WHERE id = %s FOR UPDATE", (intent,))
        assert await refunds.fate(event(await refunds.key(intent), "refunded")) == "deferred"
    await again(refunds)
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact"]


async def test_a_later_fact_is_no_proof_of_an_end_and_yet_nothing_is_sent_against_it(refunds: Hooks) -> None:
    """The object is refunded by now: that says nothing of how the call ended, but that "not executed" is wrong."""
    spine, intent = refunds.spine, await refunds.desk.pending("k")
    claimed = await refunds.desk.claim()
    assert await refunds.fate(event(await refunds.key(intent), "refunded")) == "hint"
    assert await spine.all("SELECT 1 FROM idem.proofs WHERE outcome <> 'hint'") == []
    await refunds.desk.settle(claimed, NotExecuted("request"))
    await spine.advance(120)
    for _ in range(waiting_events.FAILURES_THAT_NEED_A_PERSON + 1):
        await again(refunds)
    assert await refunds.desk.state(intent) == ("failed_retryable", "held")
    assert [kind for kind, _ in await told(refunds, intent)] == ["rested"]
    assert await spine.letters(intent) == ["event_failed", "rejected"]
    said = await spine.one("SELECT details ->> 'error' AS error FROM idem.dead_letters WHERE reason = 'event_failed'")
    assert "says what happened to an object" in said["error"]
    assert (await refunds.kept())["fate"] == "hint"
    # Closing the entry gives no event up that a call waits for.
    await refunds.desk.close(await refunds.desk.letter(intent, "event_failed"))
    assert (await refunds.kept())["fate"] == "hint"
    await refunds.desk.refuses("unconfirmed event", "redrive", intent)
    # Somebody who knows takes the responsibility, and the fact is evidence from then on.
    await refunds.desk.act("redrive", intent, know_it_did_not_happen=True)
    await again(refunds)
    assert (await refunds.kept())["fate"] == "noted"
    await spine.work()
    assert await refunds.desk.state(intent) == ("completed", None)


@pytest.mark.parametrize("fetch", [True, False])
async def test_a_refund_of_what_was_held_to_be_not_executed_stops_the_next_send(hooks: Hooks, fetch: bool) -> None:
    """The verdict was wrong. Whoever would send again does not, and the look finds what is there."""
    refunds = await knowing_refunds(hooks, fetch=fetch)
    spine, desk = refunds.spine, refunds.desk
    intent = await desk.pending("k")
    await desk.settle(await desk.claim(), NotExecuted("transport"))
    key = await refunds.key(intent)
    # As by a request that a proxy had kept for longer than any limit.
    assert await refunds.fate(event(key, "refunded", await made(refunds, key))) == "hint"
    await spine.execute("UPDATE idem.outbox SET available_at = now()")
    sent = len(spine.bank.log.requests)
    await spine.work()
    assert len(spine.bank.log.requests) == sent
    await again(refunds)
    assert await desk.state(intent) == ("completed", None)
    await again(refunds)
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact"]
    assert len(spine.bank.log.payments()) == 1
    assert [each for each in await spine.evidence(intent) if each[1] == "later_fact"] == [
        ("webhook", "later_fact", None)
    ]


async def test_the_echo_of_our_own_cancel_contradicts_nothing(hooks: Hooks) -> None:
    """We have cancelled it, and so it is told as what became of it; the next send is made under a new key."""
    spine = hooks.spine
    cancelling(spine)
    await knowing_refunds(hooks, fetch=False)
    intent, reference = await hooks.lost()
    key = await hooks.key(intent)
    assert dict((await spine.reconcile(after=300)).settled) == {"cancel:absent": 1}
    assert await hooks.desk.state(intent) == ("failed_retryable", "held")
    assert await hooks.fate(event(key, "refunded", reference)) in ("later_fact", "early")
    await again(hooks)
    await spine.reconcile(after=300)
    await spine.work()
    await again(hooks)
    await hooks.expect(intent, ("completed", None), fate="later_fact", letters=[])
