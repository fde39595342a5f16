"""What clients and handlers are told while a flow is done in part: never that nothing happened."""

import asyncio
from typing import Any

from fix_api import client
from flows.order import step

STEPS = (step("charge"), step("ship", on_refusal="operator"), step("refund", undoes="charge"))


async def test_a_later_step_that_is_too_late_is_told_as_partial(flows: Any) -> None:
    flows.define(*STEPS)
    intent = flows.accepted()
    await flows.work()
    await flows.spine.rest()
    assert (await flows.spine.events(intent))[-1] == "partial"
    assert "a step is done" in (await flows.key(intent))["last_error_message"]


async def test_a_refused_step_is_told_as_partial(flows: Any) -> None:
    flows.define(*STEPS)
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    assert (await flows.spine.events(intent))[-1] == "partial"


async def test_a_first_step_that_is_too_late_has_rested(flows: Any) -> None:
    flows.define(*STEPS)
    intent = flows.accepted()
    await flows.spine.rest()
    assert (await flows.spine.events(intent))[-1] == "rested"
    assert "nothing happened" in (await flows.key(intent))["last_error_message"]


async def test_http_says_that_earlier_steps_may_be_done(flows: Any) -> None:
    """503 `not_executed` speaks of the open step: a client must not take another key after its card was charged."""
    flows.define(*STEPS)
    async with client(flows.spine) as api:
        asked = asyncio.create_task(api.ask(path="/v1/intents/order", wait=20))
        while not api.api.waiting:
            await asyncio.sleep(0.01)
        await flows.work()
        await flows.spine.rest()
        answer = await asked
    assert flows.effects() == ["charge"]
    assert (answer.status_code, answer.json()["code"]) == (503, "not_executed")
    assert "Nothing happened" not in answer.json()["detail"]
    assert "a new key would do it again" in answer.json()["detail"]
