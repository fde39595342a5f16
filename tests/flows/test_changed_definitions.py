"""A definition that changes while flows are open: they keep the order of steps with which they began, or are held with
a dead letter that says so. No step is skipped, and none is sent again."""

from dataclasses import replace
from typing import Any

import pytest
from fix_spine import operation
from flows.order import THREE, flow, step

from idem.cli.doctor.queue import against
from idem.decisions import Decision
from idem.outbox.values.errors import ConfigError, Unserved
from idem.outbox.worker import missing_steps

CHARGE, SHIP, RECEIPT = step("charge"), step("ship", on_refusal="operator"), step("receipt", on_refusal="operator")
HOUR = missing_steps.WAIT.total_seconds() + 1
SERVED = "SELECT o.*, 1 AS rows, 0.0 AS oldest FROM idem.outbox o WHERE o.intent_id = %(i)s"


async def one_step_done(flows: Any) -> Any:
    flows.define(CHARGE, SHIP, RECEIPT)
    intent = flows.accepted()
    await flows.work()
    return intent


async def why(flows: Any, intent: Any) -> str | None:
    """What the doctor says of its row."""
    return against(await flows.spine.one(SERVED, i=intent), flows.spine.catalogue)


def one_call(flows: Any) -> None:
    known = {**flows.spine.catalogue.operations, "order": operation("order", "keyed")}
    flows.spine.catalogue = replace(flows.spine.catalogue, operations=known)
    flows.spine.acceptor.operations = known


@pytest.mark.parametrize(
    ("defined", "effects"),
    [
        # The order is that of the plan, whatever the definition says now.
        pytest.param((SHIP, CHARGE, RECEIPT), ["charge", "ship", "receipt"], id="other order"),
        pytest.param((CHARGE, step("unship"), SHIP, RECEIPT), ["charge", "ship", "receipt"], id="one more"),
        pytest.param((SHIP, RECEIPT), ["charge", "ship", "receipt"], id="one that is done, less"),
        pytest.param((CHARGE, SHIP, RECEIPT, step("refund")), ["charge", "ship", "receipt"], id="one more at the end"),
    ],
)
async def test_an_open_flow_goes_on_by_its_own_plan(flows: Any, defined: Any, effects: list[str]) -> None:
    intent = await one_step_done(flows)
    flows.define(*defined)
    await flows.work(times=4)
    assert flows.effects() == effects
    assert (await flows.intent(intent))["outcome"] == "succeeded"


async def test_refusals_follow_the_plan_too(flows: Any) -> None:
    flows.define(*THREE)
    intent = flows.accepted()
    await flows.work()
    flows.define(CHARGE, SHIP, RECEIPT, step("refund", undoes="charge"))
    await flows.work(faults=["decline"])
    await flows.work(times=2)
    assert flows.effects() == ["charge", "refund"]
    assert (await flows.intent(intent))["outcome"] == "refused"


@pytest.mark.parametrize("defined", [(CHARGE, RECEIPT), (CHARGE, step("unship"), RECEIPT)], ids=["removed", "renamed"])
async def test_a_step_that_is_gone_is_held_after_an_hour(flows: Any, defined: Any) -> None:
    intent = await one_step_done(flows)
    flows.define(*defined)
    await flows.work(times=3)
    # Processes of the old definition may still run.
    assert await flows.spine.status(intent) == "unfrozen"
    assert await flows.spine.letters(intent) == []
    assert await why(flows, intent) == "operation order has no step ship here"
    await flows.work(after=HOUR, times=2)
    assert flows.effects() == ["charge"]
    assert await flows.spine.status(intent) == "held"
    assert (await flows.key(intent))["state"] == "failed_retryable"
    letter = await flows.spine.one("SELECT reason, details FROM idem.dead_letters WHERE intent_id = %(i)s", i=intent)
    assert letter["reason"] == "unrenderable"
    assert letter["details"]["note"].startswith("it waits for its step ship, and operation order now has the steps cha")
    assert (letter["details"]["step"], letter["details"]["done"]) == ("ship", ["charge"])


async def test_who_takes_it_up_needs_the_step(flows: Any) -> None:
    intent = await one_step_done(flows)
    flows.define(CHARGE, RECEIPT)
    await flows.work(after=HOUR)
    with pytest.raises(ConfigError, match="its step ship, which its definition here does not have"):
        await flows.act("redrive", intent)
    assert not_taken_up(flows)
    flows.define(CHARGE, SHIP, RECEIPT)
    await flows.act("redrive", intent)
    await flows.work(times=3)
    assert flows.effects() == ["charge", "ship", "receipt"]
    assert await flows.spine.letters(intent) == []


def not_taken_up(flows: Any) -> bool:
    try:
        decided: Decision = flows.spine.accept(operation="order")
    except Unserved:
        return True
    return type(decided).__name__ == "AtRest"


async def test_a_frozen_request_is_left_to_who_knows_its_step(flows: Any) -> None:
    """Its bytes are written; an old process may send it, and the sweeper rests it when it is too old."""
    flows.define(CHARGE, SHIP)
    intent = flows.accepted()
    flows.define(SHIP)
    await flows.work(after=HOUR, times=2)
    assert (await flows.spine.status(intent), flows.effects()) == ("pending", [])
    assert await why(flows, intent) == "operation order has no step charge here"
    flows.define(CHARGE, SHIP)
    await flows.work(times=2)
    assert flows.effects() == ["charge", "ship"]


async def test_one_call_that_becomes_several(flows: Any) -> None:
    one_call(flows)
    frozen = flows.accepted("k1")
    flows.define(CHARGE, SHIP)
    await flows.work(times=2)
    assert (await flows.spine.status(frozen), flows.effects()) == ("pending", [])
    assert await why(flows, frozen) == "operation order has steps here, and they were accepted as one call"
    assert flows.spine.accept("k1", operation="order").intent_id == frozen
    one_call(flows)
    await flows.work()
    await flows.spine.expect(frozen, state="completed", effects=1)


async def test_one_call_that_waits_to_be_rendered_is_held_where_there_are_steps(flows: Any) -> None:
    one_call(flows)
    intent = flows.accepted()
    await flows.spine.rest()
    await flows.spine.execute(
        "UPDATE idem.outbox SET key_burned = true, quiet_after = statement_timestamp() WHERE intent_id = %(i)s",
        i=intent,
    )
    await flows.act("redrive", intent)
    assert await flows.spine.status(intent) == "unfrozen"
    flows.define(CHARGE, SHIP)
    await flows.work(after=HOUR)
    assert (await flows.spine.status(intent), flows.effects()) == ("held", [])
    note = "SELECT details ->> 'note' FROM idem.dead_letters WHERE intent_id = %(i)s AND reason = 'unrenderable'"
    assert "accepted as one call, and operation order now has the steps charge, ship" in (
        await flows.spine.value(note, i=intent)
    )


async def test_several_calls_that_become_one(flows: Any) -> None:
    intent = await one_step_done(flows)
    one_call(flows)
    await flows.work(times=2)
    assert await flows.spine.status(intent) == "unfrozen"
    assert await why(flows, intent) == "operation order has no step ship here"
    assert flows.spine.accept(operation="order").intent_id == intent
    other = flows.accepted("k2")
    await flows.work(after=HOUR)
    assert (await flows.spine.status(intent), (await flows.intent(other))["state"]) == ("held", "completed")
    flows.define(CHARGE, SHIP, RECEIPT)
    await flows.act("redrive", intent)
    await flows.work(times=3)
    assert flows.effects()[-2:] == ["ship", "receipt"]


async def test_what_a_known_worker_may_render_is_not_held(flows: Any) -> None:
    """A worker of another account, or one that does not know the operation at all, holds nothing."""
    intent = await one_step_done(flows)
    flows.spine.catalogue = replace(
        flows.spine.catalogue, operations={n: o for n, o in flows.spine.catalogue.operations.items() if n != "order"}
    )
    await flows.work(after=HOUR)
    assert await flows.spine.status(intent) == "unfrozen"
    known = flow(CHARGE, SHIP, RECEIPT)
    moved = replace(known, steps=tuple(replace(each, provider="keyless", account="keyless") for each in known.steps))
    flows.spine.catalogue = replace(
        flows.spine.catalogue, operations={**flows.spine.catalogue.operations, "order": moved}
    )
    await flows.work(after=HOUR)
    assert await flows.spine.status(intent) == "unfrozen"
    assert await why(flows, intent) == "step ship of operation order now uses another account than keyed/keyed"
