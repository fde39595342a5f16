"""A step that an operator sends again after a refusal: the old refusal says nothing of the new send (P2)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from fix_steps import claim_one
from flows.local import WRITE, local
from flows.order import OPERATOR
from sqlalchemy.orm import Session

from idem import Answer
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import proofs, results
from idem.outbox.worker.freezing import Freezer
from idem.outbox.worker.worker import Worker
from idem.outcomes import Ambiguous, Refused


async def run_for(shop: Any, seconds: float) -> None:
    worker = Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings)
    try:
        await asyncio.wait_for(worker._local_steps.once(), seconds)
    finally:
        await worker.close()


@pytest.mark.parametrize("undo", [False, True], ids=["step", "compensation"])
async def test_a_function_that_refuses_again_rests_again(shop: Any, undo: bool) -> None:
    ran: list[int] = []

    def run(db: Session, params: Any, results: Any) -> Refused:
        ran.append(1)
        db.execute(WRITE, {"step": "pay", "amount": 1, "said": ""})
        return Refused(None, "no")

    if undo:
        no = Refused(None, "no")
        steps = local("ride"), local("pay", returned=no, on_refusal="compensate"), local("unride", run, undoes="ride")
    else:
        steps = local("ride"), local("pay", run, on_refusal="operator")
    shop.define(*steps)
    intent = shop.accepted()
    await shop.work()
    assert await shop.spine.letters(intent) == ["partial"]
    for again in (2, 3):
        await shop.act("redrive", intent)
        await run_for(shop, 20)
        assert len(ran) == again
        assert (await shop.row(intent))["status"] == "held"
        assert await shop.spine.letters(intent) == ["partial"]


async def test_the_old_refusal_does_not_end_a_send_whose_answer_is_lost(flows: Any) -> None:
    """The event of the old refusal comes while the new send has a live claim, which then ends without an answer."""
    intent = await flows.partial()
    old = await flows.spine.row(intent)
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await Freezer(flows.spine.database, flows.spine.catalogue).once()
    claimed = await claim_one(flows.spine)
    row = await flows.spine.row(intent)
    await flows.prove(row, Refused(old["provider_reference"], "declined"))
    terms = flows.spine.catalogue.require("order", "ship")
    report = results.Report(claimed.row, Ambiguous(), Seen(), terms)
    assert list((await flows.spine.run(results.settle, [report])).values()) == ["folded"]
    row = await flows.spine.row(intent)
    assert (row["status"], row["step_name"], row["key_burned"]) == ("unknown", "ship", False)
    assert await flows.spine.letters(intent) == []


async def test_a_refusal_of_the_new_send_counts_though_it_has_no_reference(flows: Any) -> None:
    flows.define(*OPERATOR)
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    await flows.prove(await flows.spine.row(intent), Refused(None, "declined"))
    assert await flows.spine.letters(intent) == ["partial"]
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await flows.work(faults=["drop_before_acting"])
    row = await flows.spine.row(intent)
    assert (row["status"], row["generation"]) == ("unknown", 2)
    found = StoredProof(uuid4(), "reconciler", Refused(None, "no"), Answer(402, b"{}"), 402, row["attempt"])
    terms = flows.spine.catalogue.cautious("order", "keyed", "ship")
    evidence = Evidence("reconciler", "replay", "refused")
    assert await flows.spine.run(proofs.apply, row["id"], found, evidence, terms) == "applied"
    row = await flows.spine.row(intent)
    assert (row["status"], row["key_burned"]) == ("held", True)
    assert await flows.spine.letters(intent) == ["partial"]


async def test_a_refusal_of_an_attempt_before_the_redrive_changes_nothing(flows: Any) -> None:
    intent = await flows.partial()
    old = await flows.spine.row(intent)
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await flows.work(faults=["drop_before_acting"])
    row = await flows.spine.row(intent)
    found = StoredProof(uuid4(), "reconciler", Refused(None, "no"), Answer(402, b"{}"), 402, old["attempt"])
    terms = flows.spine.catalogue.cautious("order", "keyed", "ship")
    await flows.spine.run(proofs.apply, row["id"], found, Evidence("reconciler", "lookup", "refused"), terms)
    assert (await flows.spine.row(intent))["status"] == "unknown"
