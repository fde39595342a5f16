"""What people and clients see of a flow: its steps, what each has come to, which one is open, and what would follow."""

from typing import Any
from uuid import UUID

from fix_desk import Desk
from flows.order import Flows, step

from idem.outbox.api import intents, tenant_search
from idem.outbox.domain import plan as plans
from idem.outbox.operator.step_view import steps_of

PLAN = plans.FlowPlan(
    (
        plans.PlannedStep("charge", "call", "bank", "main"),
        plans.PlannedStep("ship", "call", "post", "main", on_refusal="compensate"),
        plans.PlannedStep("receipt", "call", "mail", "main", on_refusal="operator"),
        plans.PlannedStep("unship", "call", "post", "main", undoes=2),
        plans.PlannedStep("refund", "call", "bank", "main", undoes=1),
    )
)


def seen(*ended: tuple[int, str], open: int | None = None) -> list[tuple[str, str, str | None]]:
    shown = steps_of(
        PLAN,
        [{"step": number, "outcome": outcome} for number, outcome in ended],
        None if open is None else {"step": open},
    )
    return [(each["name"], each["state"], each["outcome"]) for each in shown]


def test_the_steps_of_a_flow_by_where_it_stands() -> None:
    assert seen(open=1) == [("charge", "open", None), ("ship", "planned", None), ("receipt", "planned", None)]
    assert seen((1, "succeeded"), open=2) == [
        ("charge", "ended", "succeeded"), ("ship", "open", None), ("receipt", "planned", None)
    ]  # fmt: skip
    # On its way back, the compensations stand there, and what is not reached any more does not.
    assert seen((1, "succeeded"), (2, "refused"), open=5) == [
        ("charge", "ended", "succeeded"), ("ship", "ended", "refused"), ("refund", "open", None)
    ]  # fmt: skip
    assert seen((1, "refused")) == [("charge", "ended", "refused")]


def test_what_would_follow_the_open_step() -> None:
    def then(number: int) -> Any:
        return next(each["then"] for each in steps_of(PLAN, [], {"step": number}) if each["state"] == "open")

    assert then(1) == {"succeeded": "ship", "refused": "end", "cancelled": "end"}
    assert then(2) == {"succeeded": "receipt", "refused": "refund", "cancelled": "refund"}
    assert then(3) == {"succeeded": "end", "refused": "partial", "cancelled": "unship"}
    assert then(5) == {"succeeded": "end", "refused": "partial"}


async def shipped(flows: Flows) -> UUID:
    """A flow whose charge is done and whose shipment is unknown."""
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    return intent


async def test_intents_show_has_the_steps(flows: Flows, desk: Desk) -> None:
    intent = await shipped(flows)
    data = (await desk.cli("intents", "show", intent, "--json", code=0)).data
    assert [(each["name"], each["state"], each["outcome"]) for each in data["steps"]] == [
        ("charge", "ended", "succeeded"), ("ship", "open", None), ("receipt", "planned", None)
    ]  # fmt: skip
    assert data["steps"][0]["provider_reference"] == await flows.spine.value(
        "SELECT provider_reference FROM idem.steps"
    )
    assert data["steps"][0]["ended_at"] and data["steps"][0]["provider"] == "keyed"
    assert {line["step_name"] for line in data["timeline"] if line["step"] == 2} == {"ship"}
    assert "plan" not in data
    await desk.cli("intents", "show", intent, code=0, out=("charge", "succeeded", "open", "if succeeded: receipt",
                                                           "if refused: refund"))  # fmt: skip


async def test_an_intent_of_one_call_has_no_steps(flows: Flows, desk: Desk) -> None:
    intent = await flows.spine.sent("other")
    data = (await desk.cli("intents", "show", intent, "--json", code=0)).data
    assert data["steps"] == [] and {line["step_name"] for line in data["timeline"]} == {None}


async def test_dlq_show_and_list_say_which_step(flows: Flows, desk: Desk) -> None:
    flows.define(step("charge"), step("ship", on_refusal="operator"))
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    (letter,) = (await desk.cli("dlq", "list", "--json", code=0)).data["dead_letters"]
    assert (letter["reason"], letter["step"], letter["provider"], letter["account"]) == (
        "partial", "ship", "keyed", "keyed"
    )  # fmt: skip
    for option, number in (("keyed", 1), ("keyless", 0)):
        found = (await desk.cli("dlq", "list", "--provider", option, "--json", code=0)).data["dead_letters"]
        assert len(found) == number
    await desk.cli("dlq", "show", letter["id"], code=0, out=("charge", "ship", "partial"))
    reference = await flows.spine.value("SELECT provider_reference FROM idem.steps WHERE name = 'charge'")
    assert len((await desk.cli("dlq", "list", "--reference", reference, "--json", code=0)).data["dead_letters"]) == 1
    (gauge,) = (await desk.cli("status", "--json")).data["dead_letters"]
    assert (gauge["provider"], gauge["account"], gauge["rows"]) == ("keyed", "keyed", 1)
    assert (await flows.intent(intent))["state"] == "failed_retryable"


async def test_the_list_by_step_by_provider_and_by_reference(flows: Flows, desk: Desk) -> None:
    intent = await shipped(flows)
    other = await flows.spine.sent("other")
    charged = await flows.spine.value("SELECT provider_reference FROM idem.steps")

    async def listed(*options: str) -> list[str]:
        return [each["id"] for each in (await desk.cli("intents", "list", *options, "--json", code=0)).data["intents"]]

    assert await listed("--step", "ship") == [str(intent)]
    assert await listed("--step", "charge") == await listed("--step", "receipt") == []
    assert await listed("--step", "ship", "--state", "completed") == []
    assert await listed("--step", "ship", "--since", "1h", "--provider", "keyed", "--account", "keyed") == [str(intent)]
    assert await listed("--provider", "keyed") == [str(other), str(intent)]
    assert await listed("--provider", "keyless") == await listed("--account", "keyless") == []
    assert await listed("--reference", charged) == [str(intent)]
    shown = next(
        each for each in (await desk.cli("intents", "list", "--json", code=0)).data["intents"]
        if each["id"] == str(intent)
    )  # fmt: skip
    assert (shown["step"], shown["provider"]) == ("ship", "keyed")
    await desk.cli("intents", "list", code=0, out="ship")


async def test_find_knows_the_references_and_keys_of_steps(flows: Flows, desk: Desk) -> None:
    """Of a done step, of an open one, and its provider key."""
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["pending"])
    names = await flows.spine.column(
        "SELECT provider_reference FROM idem.steps UNION ALL SELECT provider_reference FROM idem.outbox"
        " UNION ALL SELECT provider_key::text FROM idem.requests"
    )
    assert len(names) == 4
    for name in names:
        (found,) = (await desk.cli("find", name, "--json", code=0)).data["intents"]
        assert (found["id"], found["step"]) == (str(intent), "ship")


async def test_status_counts_the_steps_of_a_lane(flows: Flows, desk: Desk) -> None:
    await shipped(flows)
    data = (await desk.cli("status", "--json")).data
    lanes = {(each["provider"], each["account"]): each["done_per_minute"] for each in data["lanes"]}
    assert lanes["keyed", "keyed"] == 0.2
    assert all(provider for provider, _ in lanes)


async def test_the_event_of_the_end_has_the_steps(flows: Flows) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(times=2)
    payloads = await flows.spine.all(
        "SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent
    )
    assert [each["type"] for each in payloads] == ["step", "step", "step", "completed"]
    assert all("steps" not in each["payload"] for each in payloads[:3])
    steps = payloads[-1]["payload"]["steps"]
    assert [(each["step"], each["outcome"]) for each in steps] == [
        ("charge", "succeeded"), ("ship", "refused"), ("refund", "succeeded")
    ]  # fmt: skip
    assert steps[0]["provider_reference"] == await flows.spine.value(
        "SELECT provider_reference FROM idem.steps WHERE name = 'charge'"
    )


async def test_a_tenant_sees_its_steps(flows: Flows) -> None:
    intent = await shipped(flows)
    found = await flows.spine.run(intents.intent, "t", intent)
    assert found is not None
    assert [(each["name"], each["state"], each["outcome"]) for each in found["steps"]] == [
        ("charge", "ended", "succeeded"), ("ship", "open", None), ("receipt", "planned", None)
    ]  # fmt: skip
    assert found["step"] == "ship"
    assert [line["step"] for line in found["timeline"]] == ["charge", "charge", "ship", "ship", "ship"]
    (listed,) = await flows.spine.run(intents.intents, "t")
    assert listed["step"] == "ship" and "steps" not in listed
    reference = found["steps"][0]["provider_reference"]
    for tenant, number in (("t", 1), ("another", 0)):
        page, following = await flows.spine.run(
            tenant_search.intents, tenant, provider_key=None, reference=reference, label=None, since=None, until=None
        )
        assert (len(page), following) == (number, None)
