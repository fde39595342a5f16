"""No replay, no look-up, no events: what a standing order makes of a timeout (hazard 39)."""

import json
from uuid import UUID

import pytest
from fix_spine import KEYLESS, Spine
from prometheus_client import REGISTRY
from settling.shop import sends, use

from idem import Answer
from idem.decisions import Replay
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply
from idem.outcomes import Refused, Succeeded

MAIL = "pay.keyless"


async def lost(spine: Spine, **contract: object) -> UUID:
    use(spine, KEYLESS, kind="keyless", **{"lookups": False, **contract})  # type: ignore[arg-type]
    return await spine.sent(operation=MAIL, faults=["act_then_drop"])


def counted() -> float:
    moved = {"source": "policy", "from_status": "unknown", "to_status": "gone"}
    return REGISTRY.get_sample_value("idem_transitions_total", moved) or 0.0


async def test_assume_done_when_nothing_sent_can_act_any_more(spine: Spine) -> None:
    before = counted()
    intent = await lost(spine, on_unsettleable="assume_done")
    assert await spine.letters(intent) == []
    await spine.reconcile(after=10)
    assert (await spine.row(intent))["status"] == "unknown", "something sent may still act"
    await spine.reconcile(after=60)
    replay = spine.accept(operation=MAIL)
    assert isinstance(replay, Replay)
    assert (replay.answer.status, json.loads(replay.answer.body)["payment"]) == (201, None)
    seen = await spine.one("SELECT * FROM idem.evidence WHERE source = 'policy'")
    assert (seen["kind"], seen["outcome"], seen["to_state"]) == ("assume_done", "succeeded", "completed")
    assert seen["details"]["setting"] == "providers.keyless.on_unsettleable"
    assert counted() == before + 1
    assert len(sends(spine)) == 1
    assert await spine.letters(intent) == []


async def test_assume_not_done_redrives_as_the_operation_says(spine: Spine) -> None:
    intent = await lost(spine, on_unsettleable="assume_not_done")
    await spine.reconcile(after=70)
    assert (await spine.row(intent))["status"] == "held"
    await spine.reconcile(after=5)
    await spine.work()
    assert isinstance(spine.accept(operation=MAIL), Replay)
    assert len(sends(spine)) == 2
    assert ("policy", "assume_not_done", None) in await spine.evidence(intent)


async def test_assume_not_done_without_a_redrive_tells_somebody(spine: Spine) -> None:
    intent = await lost(spine, on_unsettleable="assume_not_done", operation={"redrive": "none"})
    await spine.reconcile(after=70)
    await spine.expect(intent, status="held", letters=["too_late"])


@pytest.mark.parametrize("order", ["assume_done", "assume_not_done"])
async def test_where_an_event_may_still_come_the_schedule_is_used_up_first(spine: Spine, order: str) -> None:
    intent = await lost(spine, on_unsettleable=order, events_settle=True)
    for _ in range(len(KEYLESS.schedule) - 1):
        await spine.reconcile(after=5000)
        assert (await spine.row(intent))["status"] == "unknown"
    await spine.reconcile(after=5000)
    row = await spine.row_if_any(intent)
    assert (row and row["status"]) == (None if order == "assume_done" else "held")
    assert await spine.letters(intent) == []


async def test_where_lookups_decide_nothing_the_schedule_is_used_up_first(spine: Spine) -> None:
    """They say "absent", but after a 5xx that proves nothing."""
    use(spine, KEYLESS, kind="keyless", on_unsettleable="assume_done", late_effects=True)
    intent = await spine.sent(operation=MAIL, faults=["500_before_acting"])
    for _ in range(len(KEYLESS.schedule) - 1):
        await spine.reconcile(after=5000)
        assert (await spine.row(intent))["status"] == "unknown"
    await spine.reconcile(after=5000)
    assert isinstance(spine.accept(operation=MAIL), Replay)


async def test_a_person_decides_where_there_is_no_order(spine: Spine) -> None:
    intent = await lost(spine)
    assert await spine.letters(intent) == ["not_settleable"]
    await spine.reconcile(after=5000)
    assert (await spine.row(intent))["status"] == "unknown"


async def test_a_refusal_after_an_assumption_is_a_conflict(spine: Spine) -> None:
    """What was assumed is an answer for ever; what says otherwise is told to a person."""
    intent = await lost(spine, on_unsettleable="assume_done")
    row = (await spine.row(intent))["id"]
    await spine.reconcile(after=70)
    terms = spine.catalogue.require(MAIL)
    for proof, became in ((Succeeded("pay_1"), "agrees"), (Refused("pay_1"), "conflict")):
        found = StoredProof(UUID(int=7), "webhook", proof, Answer(201, b"{}"))
        assert await spine.run(apply, row, found, Evidence("webhook", became), terms) == became
    assert await spine.letters(intent) == ["conflict"]


async def test_proofs_that_disagree_are_a_persons(spine: Spine) -> None:
    intent = await lost(spine, on_unsettleable="assume_not_done")
    await spine.execute("INSERT INTO idem.dead_letters (intent_id, reason) VALUES (%s, 'conflict')", (intent,))
    await spine.reconcile(after=200)
    assert (await spine.row(intent))["status"] == "unknown"
