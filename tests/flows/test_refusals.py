"""What follows the refusal of a step: the end, the undoing of what is done, or an operator."""

from typing import Any

from flows.order import THREE, step

from idem.decisions import NeedsOperator, Replay


async def test_the_refusal_of_the_first_step_is_the_end(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work(faults=["decline"], times=2)
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "refused")
    assert flows.effects() == []
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 402


async def test_a_refusal_undoes_what_is_done_in_reverse(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work(times=2)
    await flows.work(faults=["decline"])
    assert (await flows.intent(intent))["state"] == "in_progress"
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "unship", "refund"]
    assert await flows.ends(intent) == [
        ("charge", "succeeded"), ("ship", "succeeded"), ("receipt", "refused"), ("unship", "succeeded"),
        ("refund", "succeeded"),
    ]  # fmt: skip
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "refused")
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 402


async def test_what_was_not_done_is_not_undone(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(times=3)
    assert flows.effects() == ["charge", "refund"]
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "refused"), ("refund", "succeeded")]


async def test_what_was_skipped_is_not_undone(flows: Any) -> None:
    flows.define(THREE[0], step("ship", when=lambda p, r: False, on_refusal="compensate"), *THREE[2:])
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(times=4)
    assert flows.effects() == ["charge", "refund"]
    assert ("unship", "skipped") in await flows.ends(intent)


async def test_stop_makes_the_refusal_the_answer(flows: Any) -> None:
    flows.define(step("charge"), step("ship", on_refusal="stop"))
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "refused")
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert b'"charge"' in decided.answer.body


async def test_an_unknown_refund_is_settled_before_the_end(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(faults=["act_then_drop"])
    assert await flows.spine.status(intent) == "unknown"
    await flows.spine.reconcile(after=10)
    assert flows.effects() == ["charge", "refund"]
    assert (await flows.intent(intent))["outcome"] == "refused"


async def test_an_operator_decides_where_the_operation_says_so(flows: Any) -> None:
    flows.define(step("charge"), step("ship", on_refusal="operator"), step("refund", undoes="charge"))
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    assert await flows.spine.letters(intent) == ["partial"]
    assert await flows.spine.status(intent) == "held"
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, NeedsOperator)
    details = await flows.spine.value("SELECT details FROM idem.dead_letters WHERE intent_id = %(i)s", i=intent)
    assert (details["step"], details["done"], details["refused"]["status"]) == ("ship", ["charge"], "declined")


async def test_a_refused_compensation_waits_for_an_operator(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(faults=["decline"])
    assert await flows.spine.letters(intent) == ["partial"]
    assert flows.effects() == ["charge"]
    # Under the next key: the bank gives the same answer under the first one for ever.
    await flows.spine.advance(200)
    await flows.act("redrive", intent)
    await flows.work(times=2)
    assert flows.effects() == ["charge", "refund"]
    assert (await flows.intent(intent))["outcome"] == "refused"
    assert await flows.spine.letters(intent) == []


async def test_a_compensation_that_cannot_be_made_is_partial_too(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.spine.rest()
    assert sorted(await flows.spine.letters(intent)) == ["partial", "too_late"]
    assert isinstance(flows.spine.accept(operation="order"), NeedsOperator)
    await flows.act("redrive", intent)
    await flows.work(times=2)
    assert flows.effects() == ["charge", "refund"]
    assert await flows.spine.letters(intent) == []
