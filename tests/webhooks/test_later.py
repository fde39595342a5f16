"""Later facts: refunds, disputes and bounces are kept and told once; they change no state and prove nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fix_webhooks import Hooks, event, serving

from idem.outbox import pointer
from idem.outbox.contract import EventRule
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.rules import Condition, Places, Rule, Says

P = pointer.parse
REFUNDED = Rule(
    Says.LATER_FACT,
    body=(Condition(P("/status"), ("refunded",)),),
    places=Places(reference=P("/id"), status=P("/status"), fields={"refunded": P("/amount")}),
)


@pytest.fixture
async def refunds(hooks: Hooks) -> AsyncIterator[Hooks]:
    """An endpoint whose contract knows refunds; it asks before it believes an end."""
    known = hooks.spine.catalogue
    keyed = known.providers["keyed"]
    assert isinstance(keyed, HttpProvider)
    contract = replace(keyed.contract, event=EventRule(fetch=True))
    keyed = replace(keyed, outcome=(REFUNDED, *keyed.outcome), contract=contract)
    hooks.spine.catalogue = replace(known, providers={**known.providers, "keyed": keyed})
    async with serving(hooks.spine.url, hooks.spine.catalogue) as url:
        hooks.http.base_url = url
        yield hooks


async def told(hooks: Hooks, intent: UUID) -> list[tuple[str, dict[str, Any]]]:
    rows = await hooks.spine.all(
        "SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
    )
    return [(row["type"], row["payload"]) for row in rows]


async def test_hazard_17_a_refund_is_told_and_changes_nothing(refunds: Hooks) -> None:
    intent = await refunds.desk.completed("k")
    before = await refunds.spine.key(intent)
    version = await refunds.desk.version(intent)
    content = event(await refunds.key(intent), "refunded")
    assert await refunds.verdict(content) == "later_fact"
    assert await refunds.verdict(content) == "duplicate"
    assert await refunds.spine.key(intent) == before
    assert (await refunds.desk.state(intent), await refunds.desk.version(intent)) == (("completed", None), version)
    (_, (kind, payload)) = await told(refunds, intent)
    assert kind == "later_fact"
    assert (payload["status"], payload["fields"], payload["provider_reference"]) == (
        "refunded",
        {"refunded": 100},
        "pay_1",
    )
    assert (payload["state"], payload["outcome"]) == ("completed", "succeeded")
    assert ("webhook", "later_fact", None) in await refunds.spine.evidence(intent)
    assert await refunds.spine.all("SELECT 1 FROM idem.dead_letters") == []
    # Another event of the same object is another fact.
    assert await refunds.verdict(content, "evt_2") == "later_fact"
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact", "later_fact"]


async def test_a_refund_before_the_success_is_no_proof_and_is_told_after_it(refunds: Hooks) -> None:
    """Nobody hears that something was refunded before they hear that it was paid."""
    spine = refunds.spine
    spine.bank.script(None, ["act_then_drop"])
    intent = await asyncio.to_thread(spine.accepted, "k")
    await spine.work()
    reference = spine.bank.log.payments()[-1].id
    key = await refunds.key(intent)
    assert await refunds.verdict(event(key, "refunded", reference)) == "early"
    assert await refunds.desk.state(intent) == ("unknown", "unknown")
    assert await told(refunds, intent) == []
    assert ("webhook", "later_fact", None) in await spine.evidence(intent)
    assert await refunds.verdict(event(key, "succeeded", reference), "evt_2") == "hint"
    await spine.reconcile()
    assert await refunds.desk.state(intent) == ("completed", None)
    async with spine.database.connection() as connection:
        await connection.execute("UPDATE idem.webhook_events SET retry_at = now() WHERE retry_at IS NOT NULL")
    await spine.reconcile()
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact"]
    assert (await refunds.kept())["verdict"] == "later_fact"
    assert [each for each in await spine.evidence(intent) if each[1] == "later_fact"] == [
        ("webhook", "later_fact", None)
    ]


async def test_a_refund_of_nobodys_payment_is_unmatched(refunds: Hooks) -> None:
    assert await refunds.verdict(event(None, "refunded", "pay_x")) == "unmatched"


async def test_a_locked_intent_is_not_waited_for(refunds: Hooks) -> None:
    """Somebody's own transaction holds it: the fact is kept, answered 2xx and told afterwards."""
    intent = await refunds.desk.completed("k")
    async with refunds.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.intents WHERE id = %s FOR UPDATE", (intent,))
        assert await refunds.verdict(event(await refunds.key(intent), "refunded")) == "deferred"
    async with refunds.spine.database.connection() as connection:
        await connection.execute("UPDATE idem.webhook_events SET retry_at = now()")
    await refunds.spine.reconcile()
    assert [kind for kind, _ in await told(refunds, intent)] == ["completed", "later_fact"]


async def test_a_look_up_never_takes_a_later_fact_for_anything(refunds: Hooks) -> None:
    """The object that is asked for is refunded by now: that says nothing of how the call ended, and nothing is sent."""
    intent = await refunds.desk.pending("k")
    claimed = await refunds.desk.claim()
    assert await refunds.verdict(event(await refunds.key(intent), "refunded")) == "early"
    assert await refunds.spine.all("SELECT 1 FROM idem.proofs") == []
    from idem.outbox.outcomes import NotExecuted

    await refunds.desk.settle(claimed, NotExecuted("request"))
    async with refunds.spine.database.connection() as connection:
        await connection.execute("UPDATE idem.webhook_events SET retry_at = now()")
    await refunds.spine.reconcile()
    assert await refunds.desk.state(intent) == ("failed_retryable", "held")
    assert [kind for kind, _ in await told(refunds, intent)] == ["rested", "later_fact"]
