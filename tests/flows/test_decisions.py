"""What an operator may decide about a flow that is partly done, and what the client's own cancel may not."""

from typing import Any

import pytest
from flows.order import THREE, step

from idem.decisions import Replay
from idem.outbox.operator import confirmation
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.worker.freezing import Freezer
from idem.outcomes import Refused, Succeeded


async def test_what_is_done_is_undone(flows: Any) -> None:
    intent = await flows.partial()
    await flows.act("undo", intent)
    assert await flows.spine.letters(intent) == []
    await flows.work(times=2)
    assert flows.effects() == ["charge", "refund"]
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "refused"), ("refund", "succeeded")]
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "refused")


async def test_the_refusal_stands_as_the_answer(flows: Any) -> None:
    intent = await flows.partial()
    await flows.act("resolve_completed", intent, outcome=Refused(None, "declined"))
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "refused")
    assert flows.effects() == ["charge"]
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 402
    assert await flows.spine.letters(intent) == []


async def test_the_step_is_sent_again_under_the_next_key(flows: Any) -> None:
    intent = await flows.partial()
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await flows.work(times=2)
    assert flows.effects() == ["charge", "ship"]
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "succeeded")


async def test_a_step_that_happened_by_hand_lets_the_flow_go_on(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["drop_before_acting"])
    await flows.act("resolve_completed", intent, outcome=Succeeded("by-hand", "shipped"))
    assert (await flows.intent(intent))["state"] == "in_progress"
    await flows.work(times=2)
    assert flows.effects() == ["charge", "receipt"]
    assert flows.spine.bank.log.payments()[-1].details["metadata"]["before"].endswith("'ship': 'by-hand'}")


async def test_cancel_between_two_steps_undoes_what_is_done(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work(times=2)
    await flows.act("cancel", intent)
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "unship", "refund"]
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "cancelled")
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 409
    assert b"undone" in decided.answer.body


async def test_cancel_before_the_first_step_is_the_end(flows: Any) -> None:
    intent = flows.accepted()
    await flows.act("cancel", intent)
    await flows.work(times=2)
    assert flows.effects() == []
    assert (await flows.intent(intent))["outcome"] == "cancelled"


async def test_what_cannot_be_undone_is_not_cancelled(flows: Any) -> None:
    flows.define(step("charge"), step("ship", on_refusal="operator"))
    intent = flows.accepted()
    await flows.work()
    with pytest.raises(OperatorRefused, match="charge is done, and its operation has no step that undoes it"):
        await flows.act("cancel", intent)


async def test_a_client_cancels_nothing_that_is_partly_done(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    with pytest.raises(OperatorRefused, match="an earlier step is done"):
        await flows.act("cancel", intent, source="client")


async def test_nothing_is_undone_twice(flows: Any) -> None:
    intent = await flows.partial()
    await flows.act("undo", intent)
    with pytest.raises(OperatorRefused, match="undone already"):
        await flows.act("undo", intent)


async def test_a_call_that_may_have_left_is_not_undone_around(flows: Any) -> None:
    flows.define(*THREE)
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    with pytest.raises(OperatorRefused, match="bytes may have left"):
        await flows.act("undo", intent)


async def test_a_success_after_the_refusal_is_a_contradiction(flows: Any) -> None:
    intent = await flows.partial()
    row = await flows.spine.row(intent)
    await flows.prove(row, Succeeded(row["provider_reference"], "succeeded"))
    assert sorted(await flows.spine.letters(intent)) == ["conflict", "partial"]
    assert (await flows.spine.row(intent))["status"] == "held"
    assert await flows.ends(intent) == [("charge", "succeeded")]


async def test_a_refusal_that_was_decided_about_ends_no_later_send(flows: Any) -> None:
    """The refusal's event comes again while the step is sent under its next key."""
    intent = await flows.partial()
    refused = await flows.spine.row(intent)
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await flows.work(faults=["act_then_drop"])
    row = await flows.spine.row(intent)
    assert (row["status"], row["generation"]) == ("unknown", 2)
    await flows.prove(row, Refused(refused["provider_reference"], "declined"))
    assert await flows.spine.status(intent) == "unknown"
    await flows.spine.reconcile(after=10)
    assert (await flows.intent(intent))["outcome"] == "succeeded"
    assert flows.effects() == ["charge", "ship"]


async def test_a_flow_that_is_partly_done_never_rests_in_silence(flows: Any) -> None:
    flows.define(*THREE, retry="client")
    intent = flows.accepted()
    await flows.work()
    await flows.spine.rest()
    assert await flows.spine.letters(intent) == ["too_late"]


async def test_the_answer_says_that_not_all_was_undone(flows: Any) -> None:
    """Cancelled, then the refund is refused, and an operator leaves it at that: the charge stands."""
    intent = flows.accepted()
    await flows.work()
    await flows.act("cancel", intent)
    await flows.work(faults=["decline"])
    assert await flows.spine.letters(intent) == ["partial"]
    await flows.act("resolve_completed", intent, outcome=Refused(None, "declined"))
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert b"Not everything" in decided.answer.body


async def test_a_client_that_cancels_twice_opens_no_entry(flows: Any) -> None:
    """The first step was skipped, so the compensation of it is skipped too: the second cancel comes before that."""
    skipped = step("charge", when=lambda p, r: False)
    flows.define(skipped, step("ship", on_refusal="compensate"), step("refund", undoes="charge"))
    intent = flows.accepted()
    await Freezer(flows.spine.database, flows.spine.catalogue)._batch()
    assert await flows.ends(intent) == [("charge", "skipped")]
    await flows.act("cancel", intent, source="client")
    with pytest.raises(OperatorRefused, match="being undone already"):
        await flows.act("cancel", intent, source="client")
    assert await flows.spine.letters(intent) == []
    await flows.work(times=2)
    await flows.spine.expect(intent, state="completed", letters=[])


async def test_the_refusal_on_record_confirms_itself(flows: Any) -> None:
    """An operator who lets it stand needs no word of the provider's again."""
    intent = await flows.partial()
    asked = confirmation.ask
    found = await flows.spine.run(asked, flows.spine.catalogue, intent, None)
    assert isinstance(found.object, Refused)
    other = await flows.spine.run(asked, flows.spine.catalogue, intent, "pay_of_another")
    assert other.object != found.object
