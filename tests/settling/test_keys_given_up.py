"""Attacks on what decides about money: keys that were given up, cancels, lanes of one."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fix_desk import Desk
from fix_spine import KEYED, Spine
from fix_webhooks import Hooks, event, hooking
from settling.burned import burned
from settling.shop import cancelling, standing, use

from idem import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded


@pytest.fixture
async def hooks(desk: Desk) -> AsyncIterator[Hooks]:
    """Signed events, sent to a real port."""
    async with hooking(desk) as found:
        yield found


async def made_by_hand(spine: Spine, key: object) -> None:
    """The provider carries out what it had answered with a failure."""
    account = spine.catalogue.providers["keyed"].accounts["keyed"]
    headers = {**account.credentials, "idempotency-key": str(key)}
    async with httpx.AsyncClient(base_url=account.origin, verify=False) as client:
        await client.post("/payments", json={"amount": 100, "currency": "eur"}, headers=headers)


async def test_an_effect_under_an_earlier_key_while_the_new_one_is_unknown_calls_somebody(spine: Spine) -> None:
    """Both keys were sent and one is seen: whether the other has moved money too, nobody would ever ask."""
    use(spine, kept=True)
    intent = await burned(spine)
    old = (await spine.row(intent))["provider_key"]
    await spine.reconcile(after=200)
    await spine.work(faults=["act_then_drop"])
    row = await spine.row(intent)
    assert (row["status"], row["provider_key"] != old) == ("unknown", True)
    assert spine.effects() == 1
    spine.bank.forget_script()
    spine.bank.shift_clock(10 * 86400)
    await made_by_hand(spine, old)
    assert spine.effects() == 2
    # Neither the replay nor the look under the new key gets an answer now, the look under the earlier one does.
    spine.bank.script({"method": "POST"}, ["drop_before_acting"])
    spine.bank.script({"method": "GET"}, ["503"])
    await spine.reconcile(after=10)
    assert await spine.row_if_any(intent) is None
    assert await spine.letters(intent) == ["possible_duplicate"]


async def cancelled(spine: Spine, **contract: Any) -> UUID:
    """Sent and done, its answer lost; then cancelled by its key: at rest, and nothing stands at the provider."""
    cancelling(spine, **contract)
    intent = await spine.sent(faults=["act_then_drop"])
    assert dict((await spine.reconcile(after=KEYED.flight_limit + 10)).settled) == {"cancel:absent": 1}
    assert standing(spine) == 0
    return intent


async def late(spine: Spine, row: dict[str, Any]) -> str:
    """A worker was frozen with the answer in its hands; what it read was true, and is so no more."""
    proof = StoredProof(uuid4(), "worker", Succeeded("pay_1"), Answer(201, b"{}"), 201, 1)
    evidence = Evidence("worker", "late_result", "succeeded", Seen(201), "pay_1")
    return await spine.run(apply, row["id"], proof, evidence, spine.catalogue.require("pay.keyed"))


async def test_a_late_result_from_before_the_cancel_completes_nothing(spine: Spine) -> None:
    intent = await cancelled(spine)
    assert await late(spine, await spine.row(intent)) == "agrees"
    assert (await spine.key(intent))["state"] == "failed_retryable", "told as done, for ever, and nothing stands"
    assert ("worker", "late_result_undone", "succeeded") in await spine.evidence(intent)
    await spine.reconcile(after=200)
    await spine.work()
    assert (await spine.key(intent))["state"] == "completed"
    assert standing(spine) == 1


async def test_a_late_result_after_the_key_was_changed_completes_nothing(spine: Spine) -> None:
    """The next request is frozen under its new key and waits to be sent."""
    intent = await cancelled(spine)
    await spine.reconcile(after=200)
    worker = Worker(spine.database, spine.catalogue, spine.settings)
    await worker._freezer.once()
    await worker.close()
    row = await spine.row(intent)
    assert (row["status"], row["generation"]) == ("pending", 2)
    assert await late(spine, row) == "agrees"
    await spine.work()
    assert standing(spine) == 1
    assert await late(spine, row) == "agrees"
    assert await spine.letters(intent) == []


async def test_what_is_fetched_while_a_cancel_may_still_arrive_is_not_believed(spine: Spine, hooks: Hooks) -> None:
    """The cancel's answer is lost and the cancel is still under way; what the provider shows now is voided then."""
    cancelling(spine, lookups=True, lookup=KEYED.lookup, strategies=("cancel_by_key", "lookup"))
    known = hooks.spine.provider("keyed")
    spine.change("keyed", webhook=known.webhook, events=known.events)
    intent, payment = await hooks.lost("k1")
    await spine.advance(KEYED.flight_limit + 10)
    spine.bank.script({"path": "/payments/cancel"}, ["drop_before_acting"])
    await spine.reconcile()
    row = await spine.row(intent)
    assert (row["status"], row["cancel_sent"]) == ("unknown", True)
    await hooks.change()
    assert await hooks.fate(event(row["provider_key"], reference=payment)) == "hint"
    await spine.reconcile()
    assert await spine.row_if_any(intent) is not None, "the cancel may arrive now, and void what is shown"
    await spine.reconcile(after=KEYED.flight_limit * 2)
    assert await spine.row_if_any(intent) is None
    assert standing(spine) == 1
