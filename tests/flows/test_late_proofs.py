"""A proof names its step (hazard 57): what speaks of a done step is compared with its own end, and moves no other."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from fix_desk import Desk
from fix_sql import engine_of
from fix_steps import claim_one
from fix_webhooks import Hooks, event, hooking
from flows.order import THREE, Flows, step

from idem.outbox.domain.contract import EventRule
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import later_facts
from idem.outbox.worker.freezing import Freezer


@pytest.fixture
async def hooks(desk: Desk, flows: Flows) -> AsyncIterator[Hooks]:
    """A webhook endpoint that knows the flow."""
    async with hooking(desk) as found:
        yield found


async def key_of(hooks: Hooks, intent: UUID, step: int) -> str:
    return str(
        await hooks.spine.value(
            "SELECT provider_key::text FROM idem.requests WHERE intent_id = %(i)s AND step = %(s)s", i=intent, s=step
        )
    )


async def row_of(hooks: Hooks, intent: UUID, step: int) -> UUID:
    found = "SELECT outbox_id FROM idem.requests WHERE intent_id = %(i)s AND step = %(s)s"
    return UUID(str(await hooks.spine.value(found, i=intent, s=step)))


async def end_of(hooks: Hooks, intent: UUID, step: int) -> dict[str, Any]:
    return await hooks.spine.one("SELECT * FROM idem.steps WHERE intent_id = %(i)s AND step = %(s)s", i=intent, s=step)


async def charged(flows: Flows, hooks: Hooks) -> tuple[UUID, str, str]:
    """A flow whose charge is done and whose shipment is rendered and waits; the key and the reference of the charge."""
    intent = flows.accepted()
    await flows.work(times=1)
    assert await flows.ends(intent) == [("charge", "succeeded")]
    return intent, await key_of(hooks, intent, 1), (await end_of(hooks, intent, 1))["provider_reference"]


async def shipping(flows: Flows, status: str) -> None:
    """Bring the shipment into this status."""
    if status in ("pending", "claimed"):
        await Freezer(flows.spine.database, flows.spine.catalogue).once()
    if status == "claimed":
        await claim_one(flows.spine)
    elif status in ("unknown", "awaiting"):
        await flows.work(faults=["act_then_drop" if status == "unknown" else "pending"])


async def test_an_open_step_is_settled_by_an_event_with_its_key(flows: Flows, hooks: Hooks) -> None:
    """The first step has no answer; the event says that it happened, and the next one begins."""
    intent = flows.accepted()
    await flows.work(faults=["act_then_drop"])
    await flows.spine.expect(intent, state="unknown")
    assert await hooks.fate(event(await key_of(hooks, intent, 1), reference="pay_1")) == "applied"
    assert await flows.ends(intent) == [("charge", "succeeded")]
    assert (await flows.key(intent))["state"] == "in_progress"
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    await flows.spine.expect(intent, state="completed")


async def test_the_event_of_the_last_step_gives_the_client_its_answer(flows: Flows, hooks: Hooks) -> None:
    intent = flows.accepted()
    await flows.work(times=2)
    await flows.work(faults=["act_then_drop"])
    assert await hooks.fate(event(await key_of(hooks, intent, 3), reference="pay_3")) == "applied"
    key = await flows.key(intent)
    assert (key["state"], key["response_status"]) == ("completed", 201)
    assert b'"receipt": "succeeded"' in bytes(key["response_body"]).replace(b'":"', b'": "')


@pytest.mark.parametrize("by", ["key", "reference"])
async def test_hazard_57_a_repeated_event_of_a_done_step_leaves_the_open_one_alone(
    flows: Flows, hooks: Hooks, by: str
) -> None:
    intent, key, reference = await charged(flows, hooks)
    before = await flows.spine.row(intent)
    content = event(key if by == "key" else None, reference=reference)
    assert await hooks.fate(content, "evt_1") == "agrees"
    assert await hooks.fate(event(key, "processing", reference), "evt_2") == "agrees"
    assert await flows.spine.row(intent) == before
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    await flows.spine.expect(intent, state="completed", letters=[])


@pytest.mark.parametrize(
    ("status", "reference", "reason"),
    [("declined", None, "conflict"), ("succeeded", "pay_other", "possible_duplicate")],
)
async def test_a_contradiction_of_a_done_step_opens_an_entry_that_names_it(
    flows: Flows, hooks: Hooks, status: str, reference: str | None, reason: str
) -> None:
    intent, key, own = await charged(flows, hooks)
    before = await flows.spine.row(intent)
    assert await hooks.fate(event(key, status, reference or own)) == "conflict"
    letter = await flows.spine.one("SELECT reason, details FROM idem.dead_letters WHERE intent_id = %(i)s", i=intent)
    assert (letter["reason"], letter["details"]["step"]) == (reason, "charge")
    assert await flows.spine.row(intent) == before
    assert await flows.spine.events(intent) == ["step", "corrected"]
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]


async def test_a_contradiction_of_a_done_step_does_not_stop_the_open_one(flows: Flows, hooks: Hooks) -> None:
    """The shipment was lost before it arrived: it is replayed as ever, because the entry is about the charge."""
    intent, key, reference = await charged(flows, hooks)
    assert await hooks.fate(event(key, "declined", reference)) == "conflict"
    await flows.work(faults=["drop_before_acting"])
    await flows.spine.expect(intent, state="unknown")
    await flows.spine.reconcile(after=60, times=3)
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "succeeded")]
    await flows.work(times=2)
    await flows.spine.expect(intent, state="completed", letters=["conflict"])


async def test_an_effect_of_a_step_that_was_refused_is_a_contradiction(flows: Flows, hooks: Hooks) -> None:
    """The client has its refusal, and the compensation has run: the shipment must not have happened as well."""
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    key = await key_of(hooks, intent, 2)
    await flows.work(times=2)
    await flows.spine.expect(intent, state="completed")
    assert await hooks.fate(event(key, "succeeded", "pay_late")) == "conflict"
    assert await flows.spine.letters(intent) == ["conflict"]


@pytest.mark.parametrize("status", ["unfrozen", "pending", "claimed", "unknown", "awaiting", "held"])
async def test_hazard_57_whatever_the_open_step_is_doing(flows: Flows, hooks: Hooks, status: str) -> None:
    """Late events of the charge, while the shipment is in each status."""
    intent, key, reference = await charged(flows, hooks)
    if status == "held":
        await flows.spine.rest()
    await shipping(flows, status)
    row = await flows.spine.row(intent)
    assert row["status"] == status
    for number, said in enumerate(("succeeded", "processing", "succeeded")):
        assert await hooks.fate(event(key, said, reference), f"evt_{number}") == "agrees"
    assert await flows.spine.row(intent) == row
    assert await flows.ends(intent) == [("charge", "succeeded")]
    assert await flows.spine.all("SELECT 1 FROM idem.proofs") == []


async def test_a_proof_of_a_done_step_waits_for_nobody_who_holds_the_flow(flows: Flows, hooks: Hooks) -> None:
    """The client's own retry of the open step may stay open for minutes: the proof is stored, and compared later."""
    intent, key, _ = await charged(flows, hooks)
    with engine_of(flows.spine.url).begin() as connection:
        connection.exec_driver_sql("SELECT FROM idem.outbox FOR UPDATE")
        assert await hooks.fate(event(key, reference="pay_other")) == "stored"
        await flows.spine.reconcile()
        assert await flows.spine.letters(intent) == []
    await flows.spine.reconcile()
    assert await flows.spine.letters(intent) == ["possible_duplicate"]
    assert await flows.spine.all("SELECT 1 FROM idem.proofs") == []


async def test_an_event_that_came_before_the_reference_is_due_when_that_is_written(flows: Flows, hooks: Hooks) -> None:
    """By the end of the step, or while it is awaited."""
    intent = flows.accepted()
    assert await hooks.fate(event(None, reference="pay_early")) == "unmatched"
    wake = "UPDATE idem.webhook_events SET retry_at = NULL"
    await flows.spine.execute(wake)
    await flows.work(faults=["pending"])
    awaited = (await flows.spine.row(intent))["provider_reference"]
    assert await hooks.fate(event(None, reference=awaited), "evt_2") == "applied"
    await flows.spine.execute("UPDATE idem.webhook_events SET reference = 'pay_ship' WHERE event_id = 'evt_1'")
    await flows.spine.execute(
        "UPDATE idem.outbox SET provider_reference = 'pay_ship' WHERE step_name = 'ship' AND intent_id = %(i)s",
        i=intent,
    )
    assert (await hooks.kept())["retry_at"] is not None


async def test_a_later_fact_about_a_done_step_is_told_while_another_is_open(flows: Flows, hooks: Hooks) -> None:
    intent, _, reference = await charged(flows, hooks)
    await shipping(flows, "unknown")
    row = await flows.spine.row(intent)
    told = await hooks.spine.run(
        later_facts.record_fact, await row_of(hooks, intent, 1), intent,
        Evidence("webhook", "later_fact", None, reference=reference), token=uuid4(), status="refunded",
        fields={"amount": 100}, step="charge",
    )  # fmt: skip
    assert told == "emitted"
    payload = (await flows.spine.all("SELECT payload FROM idem.events ORDER BY number"))[-1]["payload"]
    assert (payload["step"], payload["status"], payload["provider_reference"]) == ("charge", "refunded", reference)
    assert await flows.spine.row(intent) == row
    early = await hooks.spine.run(
        later_facts.record_fact, row["id"], intent, Evidence("webhook", "later_fact", None), token=uuid4(),
        status="refunded", fields={}, step="ship",
    )  # fmt: skip
    assert early == "open"


async def test_the_end_of_an_object_that_completed_its_step_earlier_is_told_once(flows: Flows, hooks: Hooks) -> None:
    """The charge answers the client when its object is there, and that comes to its end while the shipment is open."""
    flows.define(replace(THREE[0], completes=True), *THREE[1:], completes_when="exists")
    await hooks.change()
    intent = flows.accepted()
    await flows.work(faults=["pending"])
    end = await end_of(hooks, intent, 1)
    assert (end["outcome"], end["object_end"]) == ("succeeded", "open")
    key, reference = await key_of(hooks, intent, 1), end["provider_reference"]
    assert await hooks.fate(event(key, "declined", reference), "evt_1") == "later_fact"
    assert await hooks.fate(event(key, "declined", reference), "evt_2") in ("later_fact", "agrees")
    assert (await end_of(hooks, intent, 1))["object_end"] == "refused"
    assert await flows.spine.events(intent) == ["step", "later_fact"]
    (payload,) = [
        each["payload"] for each in await flows.spine.all("SELECT payload FROM idem.events WHERE type = 'later_fact'")
    ]
    assert (payload["step"], payload["outcome"]) == ("charge", "refused")


async def test_the_refusal_of_a_partial_flow_is_no_news(flows: Flows, hooks: Hooks) -> None:
    """The event of a decline comes after the answer that said so."""
    flows.define(step("charge"), step("ship", on_refusal="operator"))
    await hooks.change()
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.spine.expect(intent, state="failed_retryable", status="held", letters=["partial"])
    refused = await flows.spine.value("SELECT details FROM idem.dead_letters")
    before, told = await flows.spine.row(intent), await flows.spine.events(intent)
    key, reference = await key_of(hooks, intent, 2), refused["refused"]["reference"]
    assert await hooks.fate(event(key, "declined", reference)) in ("applied", "agrees")
    after = await flows.spine.row(intent)
    assert (after["status"], after["attempt"]) == ("held", before["attempt"])
    assert await flows.spine.letters(intent) == ["partial"]
    assert await flows.spine.events(intent) == told


@pytest.mark.parametrize("status", ["unknown", "unfrozen"])
async def test_an_event_that_is_fetched_first_goes_by_its_step_too(flows: Flows, hooks: Hooks, status: str) -> None:
    """About the open step it is the proof when the provider has shown it; about a done one it is old news."""
    await hooks.change(contract=replace(flows.spine.provider("keyed").contract, event_rule=EventRule(fetch=True)))
    intent, key, reference = await charged(flows, hooks)
    await shipping(flows, status)
    assert await hooks.fate(event(key, reference=reference), "evt_1") == "agrees"
    if status == "unknown":
        shipped = flows.spine.bank.log.payments()[-1].id
        assert await hooks.fate(event(await key_of(hooks, intent, 2), reference=shipped), "evt_2") == "hint"
        await flows.spine.reconcile()
        assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "succeeded")]
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    await flows.spine.expect(intent, state="completed", letters=[])


async def test_events_of_a_done_step_beside_the_worker_lose_nothing(flows: Flows, hooks: Hooks) -> None:
    """Repetitions, contradictions and the worker's own ends at once: each step is made once, events have one number."""
    intent, key, reference = await charged(flows, hooks)

    async def events(number: int) -> None:
        for said, known in (("succeeded", reference), ("declined", reference), ("succeeded", f"pay_{number}")):
            fate = await hooks.fate(event(key, said, known), f"evt_{number}_{said}_{known}")
            assert fate in ("agrees", "conflict", "stored", "deferred"), fate

    await asyncio.gather(flows.work(times=4), *(events(number) for number in range(8)))
    await flows.spine.advance(120)
    await flows.spine.reconcile(times=3)
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    await flows.spine.expect(intent, state="completed", letters=["conflict", "possible_duplicate"])
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "succeeded"), ("receipt", "succeeded")]
    numbers = await flows.spine.column("SELECT number FROM idem.events ORDER BY number")
    assert numbers == list(range(1, len(numbers) + 1))
    assert await flows.spine.all("SELECT 1 FROM idem.proofs") == []
