"""A flow goes on at its recovery point: each step once, under a key of its own, and in the order of the plan."""

from dataclasses import replace
from typing import Any

from flows.order import THREE, step

from idem.decisions import InProgress, Replay


async def test_each_step_is_made_once_and_in_its_order(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "succeeded"), ("receipt", "succeeded")]
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"], found["recovery_point"]) == ("completed", "succeeded", 3)
    assert await flows.spine.row_if_any(intent) is None
    keys = await flows.spine.column("SELECT DISTINCT provider_key FROM idem.requests WHERE intent_id = %(i)s", i=intent)
    assert len(keys) == 3


async def test_the_recovery_point_moves_with_the_row_of_the_next_step(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    found, row = await flows.intent(intent), await flows.spine.row(intent)
    assert (found["state"], found["recovery_point"]) == ("in_progress", 1)
    assert (row["step"], row["step_name"], row["status"], row["attempt"]) == (2, "ship", "unfrozen", 0)


async def test_a_step_sees_the_results_before_it(flows: Any) -> None:
    flows.accepted()
    await flows.work(times=3)
    charge, ship, receipt = flows.spine.bank.log.payments()
    assert receipt.details["metadata"]["before"] == str({"charge": charge.id, "ship": ship.id})


async def test_the_answer_says_what_each_step_came_to(flows: Any) -> None:
    flows.accepted()
    assert isinstance(flows.spine.accept(operation="order"), InProgress)
    await flows.work(times=3)
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 201
    assert b'"receipt": "succeeded"' in decided.answer.body or b'"receipt":"succeeded"' in decided.answer.body


async def test_each_step_has_an_event_and_the_end_has_one(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work(times=3)
    assert await flows.spine.events(intent) == ["step", "step", "step", "completed"]


async def test_an_unknown_step_is_settled_and_the_flow_goes_on(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    assert await flows.spine.status(intent) == "unknown"
    assert (await flows.key(intent))["state"] == "unknown"
    await flows.spine.reconcile(after=10)
    assert (await flows.spine.row(intent))["step_name"] == "receipt"
    assert (await flows.key(intent))["state"] == "in_progress"
    await flows.work()
    assert flows.effects() == ["charge", "ship", "receipt"]
    assert (await flows.intent(intent))["state"] == "completed"


async def test_a_step_that_never_arrived_is_sent_again_alone(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["drop_before_acting"])
    for _ in range(6):
        await flows.spine.reconcile(after=200)
    await flows.work(times=3, after=10)
    assert flows.effects() == ["charge", "ship", "receipt"]
    assert (await flows.intent(intent))["state"] == "completed"


async def test_a_step_may_complete_the_key_while_later_ones_run(flows: Any) -> None:
    flows.define(step("charge", completes=True), *THREE[1:])
    intent = flows.accepted()
    await flows.work()
    stored = flows.spine.accept(operation="order")
    assert isinstance(stored, Replay)
    assert (await flows.intent(intent))["state"] == "in_progress"
    await flows.work(faults=["act_then_drop"])
    assert (await flows.intent(intent))["state"] == "unknown"
    assert flows.spine.accept(operation="order").answer == stored.answer
    await flows.spine.reconcile(after=10)
    await flows.work()
    assert (await flows.intent(intent))["state"] == "completed"
    assert flows.spine.accept(operation="order").answer == stored.answer
    assert flows.effects() == ["charge", "ship", "receipt"]


async def test_a_step_that_is_not_wanted_is_skipped(flows: Any) -> None:
    flows.define(THREE[0], step("ship", when=lambda p, r: False, on_refusal="compensate"), *THREE[2:])
    intent = flows.accepted()
    await flows.work(times=3)
    assert flows.effects() == ["charge", "receipt"]
    assert await flows.ends(intent) == [("charge", "succeeded"), ("ship", "skipped"), ("receipt", "succeeded")]


async def test_a_flow_may_end_with_a_step_that_is_skipped(flows: Any) -> None:
    flows.define(THREE[0], step("ship", when=lambda p, r: not r["charge"].succeeded, on_refusal="stop"))
    intent = flows.accepted()
    await flows.work(times=2)
    found = await flows.intent(intent)
    assert (found["state"], found["outcome"]) == ("completed", "succeeded")
    decided = flows.spine.accept(operation="order")
    assert isinstance(decided, Replay)
    assert decided.answer.status == 201


async def test_the_first_step_may_be_skipped(flows: Any) -> None:
    flows.define(step("charge", when=lambda p, r: p["amount"] > 500), *THREE[1:])
    intent = flows.accepted(amount=100)
    assert (await flows.spine.row(intent))["status"] == "unfrozen"
    await flows.work(times=3)
    assert flows.effects() == ["ship", "receipt"]


async def test_the_key_of_a_flow_that_is_partly_done_never_expires(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.spine.rest()
    assert (await flows.key(intent))["state"] == "failed_retryable"
    await flows.spine.advance(40 * 86400)
    await flows.spine.sweep()
    assert (await flows.key(intent))["state"] == "failed_retryable"
    assert await flows.spine.letters(intent) == ["too_late"]
    flows.spine.accept(operation="order")
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]


async def test_a_key_that_a_step_completed_expires_after_the_last_step(flows: Any) -> None:
    flows.define(step("charge", completes=True), *THREE[1:])
    intent = flows.accepted()
    await flows.work()
    await flows.spine.advance(40 * 86400)
    await flows.spine.sweep()
    assert (await flows.key(intent))["state"] == "completed"
    await flows.act("redrive", intent)
    await flows.work(times=3)
    await flows.spine.advance(40 * 86400)
    await flows.spine.sweep()
    assert (await flows.key(intent))["state"] == "expired"


async def test_the_plan_of_the_accept_is_what_runs(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    order = flows.spine.catalogue.operations["order"]
    without = [each for each in order.steps if each.step.name != "receipt"]
    flows.spine.operate("order", steps=(without[0], without[1], *without[2:]))
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship"]
    assert (await flows.intent(intent))["state"] == "in_progress"
    flows.spine.operate("order", steps=(*order.steps[:3], replace(order.steps[0], step=step("more")), *order.steps[3:]))
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    assert (await flows.intent(intent))["state"] == "completed"


async def test_the_key_stays_with_a_flow_that_goes_on(flows: Any) -> None:
    """A step has completed the key, and a later one waits at the provider for longer than the answer is kept."""
    flows.define(step("charge", completes=True), *THREE[1:])
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    await flows.spine.execute("UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'x',"
                              " resolved_by = 'x' WHERE resolved_at IS NULL")  # fmt: skip
    await flows.spine.advance(9 * 86400)
    await flows.spine.sweep()
    assert (await flows.key(intent))["state"] == "completed"


async def test_what_lost_commits_may_have_sent_is_doubted_for_later_steps_too(flows: Any) -> None:
    intent = flows.accepted()
    await flows.spine.forced("UPDATE idem.outbox SET doubted_since = statement_timestamp() - interval '1 s'")
    await flows.work()
    row = await flows.spine.row(intent)
    assert row["step_name"] == "ship"
    assert row["doubted_since"] is not None
