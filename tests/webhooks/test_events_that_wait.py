"""Attacks on what waits: events that the contract reads no more, hints that nobody can ask about."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fix_spine import KEYED, Spine
from fix_webhooks import READER, Hooks, event
from settling.shop import cancelling, sends, standing
from webhooks.refunds import again

from idem import Answer
from idem.errors import OperatorRefused
from idem.outbox.domain.contract import EventRule
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.domain.webhook import Event
from idem.outbox.operator import actions, locking
from idem.outbox.settle import decide, later_facts, proofs
from idem.outbox.values import json_pointer
from idem.outcomes import Succeeded
from idem.reconciler.webhooks import hints


def reading(spine: Spine, **changes: Any) -> None:
    spine.change("keyed", events=READER.model_copy(update=changes))


async def test_an_event_that_the_contract_cannot_read_for_a_while_is_not_lost(hooks: Hooks) -> None:
    """A daemon whose contract takes every delivery for a batch looks at it once: it waits on for its call."""
    spine = hooks.spine
    key = "00000000-0000-8000-8000-000000000000"
    assert await hooks.fate(event(key, reference="pay_1")) == "unmatched"
    reading(spine, events=json_pointer.parse("/events"))
    await again(hooks)
    kept = await hooks.kept()
    assert (kept["fate"], kept["retry_at"] is not None) == ("unmatched", True)
    await spine.advance(86400 * 5)
    await again(hooks)
    assert await spine.all("SELECT 1 FROM idem.dead_letters") == []
    reading(spine)
    await again(hooks)
    assert await spine.value("SELECT reason FROM idem.dead_letters") == "unmatched_webhook"


@pytest.mark.parametrize("state", ["unknown", "held", "queued"])
async def test_who_is_sure_passes_an_event_that_nobody_can_confirm(hooks: Hooks, state: str) -> None:
    """Else a question that the provider never answers would keep the row for ever."""
    spine, acts = hooks.spine, hooks.desk
    await hooks.change(contract=replace(spine.provider("keyed").contract, event_rule=EventRule(fetch=True)))
    make = {"unknown": acts.unknown, "held": acts.held, "queued": acts.pending}[state]
    act = "cancel" if state == "queued" else "redrive"
    intent = await make("k")
    assert await hooks.fate(event(await hooks.key(intent))) == "hint"
    before = await acts.state(intent)
    with pytest.raises(OperatorRefused, match="an unconfirmed event"):
        await acts.act(act, intent)
    assert await acts.state(intent) == before
    await acts.act(act, intent, know_it_did_not_happen=True)
    done = ("completed", None) if state == "queued" else ("in_progress", "pending")
    assert await acts.state(intent) == done
    assert await spine.all("SELECT 1 FROM idem.proofs") == []
    # It is still asked about: what the provider shows counts.
    assert (await hooks.kept())["fate"] == "hint"
    spine.bank.script({"method": "GET"}, ["503"])
    await again(hooks)
    if state != "queued":
        await spine.work()
        assert await acts.state(intent) == ("completed", None)


async def test_a_hint_that_comes_while_somebody_decides_is_not_passed(hooks: Hooks) -> None:
    intent = await hooks.desk.held("k")
    row = await hooks.spine.row(intent)
    async with hooks.spine.database.connection() as connection:
        with pytest.raises(OperatorRefused, match="new evidence arrived"):
            async with locking.lock_intent(connection, intent, None, "ada", "why") as held:
                async with hooks.spine.database.connection() as other:
                    about = Event(key=str(row["provider_key"]), bare=True)
                    await hints.keep(other, uuid4(), row["id"], about)
                terms = hooks.spine.catalogue.require("pay.keyed")
                change = decide.redriven(held.row, Evidence("operator", "redriven"), terms)
                await actions.write_decision(connection, change, held)


async def test_a_late_success_under_a_cancelled_key_leaves_a_way_out(hooks: Hooks) -> None:
    """The provider can be asked nothing: the row waits, a person is called, and what that one decides is done."""
    spine = hooks.spine
    cancelling(spine)
    await hooks.change()
    intent = await asyncio.to_thread(spine.accepted, "k")
    old = await hooks.key(intent)
    await spine.work(faults=["act_then_drop"])
    await spine.reconcile(after=KEYED.flight_limit + 10)
    await spine.reconcile(after=200)
    assert await hooks.fate(event(old, "succeeded", "pay_1")) == "hint"
    for _ in range(4):
        await again(hooks)
        await spine.work()
        await spine.advance(200)
    assert (await hooks.desk.state(intent), len(sends(spine))) == (("in_progress", "unfrozen"), 1)
    assert await spine.letters(intent) == ["event_failed"]
    await hooks.desk.refuses("an unconfirmed event", "cancel", intent)
    await hooks.desk.act("cancel", intent, know_it_did_not_happen=True)
    assert await hooks.desk.state(intent) == ("completed", None)
    await again(hooks)
    await hooks.expect(intent, fate="noted", letters=[])
    assert (len(sends(spine)), standing(spine)) == (1, 0)


async def test_a_later_fact_and_a_late_success_meet(hooks: Hooks) -> None:
    """Both are told as events of the intent, and neither is lost: the number of one is not the other's."""
    spine = hooks.spine
    intent = await hooks.desk.held("k")
    row, terms = await spine.row(intent), spine.catalogue.require("pay.keyed")
    success = StoredProof(uuid4(), "worker", Succeeded("pay_1"), Answer(201, b"{}"), 201, 1)

    async def late() -> str:
        return await spine.run(proofs.apply, row["id"], success, Evidence("worker", "late_result"), terms)

    async with spine.database.connection() as connection, connection.transaction():
        refunded = Evidence("webhook", "later_fact", reference="pay_1")
        # As for a call that we have cancelled: of any other at rest nothing is told before the provider was asked.
        told = await later_facts.record_fact(
            connection, row["id"], intent, refunded, token=uuid4(), status="refunded", fields={}, explained=True
        )
        assert told == "emitted"
        meeting = asyncio.create_task(late())
        await asyncio.sleep(0.2)
    assert await meeting == "applied"
    await hooks.expect(intent, ("completed", None), events=["rested", "later_fact", "corrected"])


async def test_a_later_fact_waits_for_nobody_who_holds_the_row(hooks: Hooks) -> None:
    intent = await hooks.desk.held("k")
    row = await hooks.spine.row(intent)
    database = hooks.spine.database
    async with database.connection() as holder, holder.transaction():
        await holder.execute("SELECT FROM idem.outbox FOR UPDATE")
        async with database.connection() as connection:
            fact = Evidence("webhook", "later_fact", reference="pay_1")
            told = await later_facts.record_fact(
                connection, row["id"], intent, fact, token=uuid4(), status="refunded", fields={}
            )
    assert told == "locked"
