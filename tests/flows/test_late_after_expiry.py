"""A step is proven done after its flow's key has expired: its client was told that nothing happened.

It may have sent the order again under another key. So the flow does not go on by itself: an operator decides.
"""

from typing import Any
from uuid import UUID

import pytest
from flows.order import step

from idem.outcomes import Succeeded

COMPENSATED = (step("charge"), step("ship", on_refusal="compensate"), step("refund", undoes="charge"))


@pytest.fixture
async def late(flows: Any) -> UUID:
    """Too late to be charged, as far as anybody knew, until the key had expired; then the provider shows the charge."""
    flows.define(*COMPENSATED, retry="client")
    intent: UUID = flows.accepted()
    row = await flows.spine.row(intent)
    await flows.spine.rest()
    await flows.spine.advance(40 * 86400)
    await flows.spine.sweep()
    assert (await flows.key(intent))["state"] == "expired"
    await flows.prove(row, Succeeded("pay_late"))
    return intent


async def test_the_next_step_begins_at_rest(flows: Any, late: UUID) -> None:
    await flows.work(times=3)
    await flows.spine.sweep()
    assert flows.effects() == []
    assert await flows.ends(late) == [("charge", "succeeded")]
    row = await flows.spine.row(late)
    assert (row["status"], row["step_name"]) == ("held", "ship")
    assert (await flows.intent(late))["state"] == "failed_retryable"
    assert (await flows.key(late))["state"] == "expired"
    letter = await flows.spine.one("SELECT reason, details FROM idem.dead_letters WHERE intent_id = %(i)s", i=late)
    assert letter["reason"] == "partial"
    assert letter["details"] == {
        "step": "ship", "done": ["charge"], "steps": ["charge", "ship"], "why": "the key has expired"
    }  # fmt: skip


async def test_its_row_stays_until_it_is_decided(flows: Any, late: UUID) -> None:
    for _ in range(3):
        await flows.spine.advance(400 * 86400)
        await flows.spine.sweep()
    assert (await flows.spine.row(late))["status"] == "held"


async def test_an_operator_lets_it_go_on(flows: Any, late: UUID) -> None:
    await flows.act("redrive", late)
    await flows.work(times=2)
    assert flows.effects() == ["ship"]
    found = await flows.intent(late)
    assert (found["state"], found["outcome"]) == ("completed", "succeeded")
    assert await flows.spine.letters(late) == []


async def test_an_operator_has_it_undone(flows: Any, late: UUID) -> None:
    await flows.act("undo", late)
    await flows.work(times=2)
    assert flows.effects() == ["refund"]
    assert await flows.ends(late) == [("charge", "succeeded"), ("ship", "cancelled"), ("refund", "succeeded")]


async def test_the_same_proof_before_the_expiry_lets_it_go_on(flows: Any) -> None:
    flows.define(*COMPENSATED)
    intent = flows.accepted()
    row = await flows.spine.row(intent)
    await flows.spine.rest()
    await flows.prove(row, Succeeded("pay_late"))
    await flows.work(times=2)
    assert flows.effects() == ["ship"]
    assert (await flows.intent(intent))["state"] == "completed"


async def test_the_evidence_of_a_step_begins_after_the_end_of_the_one_before(flows: Any) -> None:
    """The ids of evidence are its order: who lists it reads what happened, one after the other."""
    flows.define(*COMPENSATED)
    intent = flows.accepted()
    await flows.work(times=2)
    told = await flows.spine.all("SELECT step, kind FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id", i=intent)
    kinds = [(row["step"], row["kind"]) for row in told]
    assert kinds.index((1, "report")) < kinds.index((2, "begun"))
    assert [step for step, _ in kinds] == sorted(step for step, _ in kinds)
