"""A flow that needs an approval: it is of the whole flow, and nothing of it is made before, whatever comes first."""

import os
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from approval.waiting import BIG, SMALL, above
from fix_spine import Spine
from flows.local import ROWS, LocalFlows, local
from flows.order import step
from producers.application import Application, synced

from idem.decisions import Accepted
from idem.migrations import grants
from idem.outcomes import Succeeded

CALLS = (step("charge"), step("ship", on_refusal="compensate"), step("refund", undoes="charge"))
LOCAL_FIRST = (local("ride"), step("charge", on_refusal="stop"))


@pytest.fixture
async def shop(spine: Spine) -> LocalFlows:
    await spine.execute(ROWS)
    return LocalFlows(spine)


class Sql:
    """The same flow, accepted by SQL alone: nobody has looked at it before a worker does."""

    def __init__(self, shop: LocalFlows) -> None:
        synced(shop.spine.url, shop.spine.catalogue)
        self.application = Application(shop.spine.url)

    def accepted(self, amount: int) -> UUID:
        return self.application.accepted("k1", {"amount": amount}, operation="order")


def asks(shop: LocalFlows, amount: int = BIG) -> UUID:
    decided = shop.spine.accept("k1", amount, operation="order", asked_by="shop")
    assert isinstance(decided, Accepted) and decided.status == "approval"
    return decided.intent_id


async def waits(shop: LocalFlows, intent: UUID, effects: int = 0) -> None:
    """Nothing of it is made by a pass of everything that could do it."""
    await shop.work(times=2)
    await shop.spine.sweep()
    await shop.spine.reconcile()
    row = await shop.row(intent)
    assert (row["status"], row["approval"], row["attempt"]) == ("approval", "wanted", 0)
    assert shop.spine.effects() == effects and await shop.rows() == []


async def told(shop: LocalFlows, intent: UUID, kind: str) -> Any:
    return await shop.spine.one(
        "SELECT * FROM idem.evidence WHERE intent_id = %(i)s AND kind = %(k)s", i=intent, k=kind
    )


async def test_a_flow_is_approved_once_before_its_first_step(shop: LocalFlows) -> None:
    shop.define(*CALLS, approve=above)
    intent = asks(shop)
    await waits(shop, intent)
    assert (await shop.act("approve", intent)).status == "pending"
    await shop.work()
    row = await shop.row(intent)
    assert (row["step_name"], row["status"], row["approval"]) == ("ship", "unfrozen", None)
    await shop.work(times=2)
    assert shop.effects() == ["charge", "ship"]
    assert await shop.answer(intent) == ("completed", 201)


@pytest.mark.parametrize(("action", "status"), [("reject", 403), ("cancel", 409)])
async def test_what_is_not_wanted_ends_and_nothing_was_done(shop: LocalFlows, action: str, status: int) -> None:
    shop.define(*CALLS, approve=above)
    intent = asks(shop)
    done = await shop.act(action, intent)
    ended = {"reject": "rejected", "cancel": "cancelled"}[action]
    assert (done.state, done.status) == ("completed", None)
    assert (await shop.intent(intent))["outcome"] == ended
    assert await shop.ends(intent) == [("charge", "cancelled")]
    assert await shop.answer(intent) == ("completed", status)
    events = await shop.spine.all(
        "SELECT type, payload ->> 'outcome' AS outcome FROM idem.events WHERE aggregateid = %(i)s ORDER BY number",
        i=intent,
    )  # fmt: skip
    assert (events[-1]["type"], events[-1]["outcome"]) == ("completed", ended)
    await shop.work(times=2)
    assert shop.effects() == [] and await shop.row(intent) is None


async def test_the_function_of_a_local_first_step_does_not_run_before_the_approval(shop: LocalFlows) -> None:
    shop.define(*LOCAL_FIRST, approve=above)
    intent = asks(shop)
    await waits(shop, intent)
    assert (await shop.act("approve", intent)).status == "unfrozen"
    await shop.work(times=3)
    assert await shop.rows() == [("ride", "")] and shop.effects() == ["charge"]
    assert await shop.answer(intent) == ("completed", 201)


async def test_a_local_first_step_that_is_rejected_never_ran(shop: LocalFlows) -> None:
    shop.define(*LOCAL_FIRST, approve=above)
    intent = asks(shop)
    await shop.act("reject", intent)
    await shop.work(times=2)
    assert await shop.rows() == [] and shop.effects() == []
    assert await shop.ends(intent) == [("ride", "cancelled")]
    assert await shop.answer(intent) == ("completed", 403)


@pytest.mark.parametrize("steps", [CALLS, LOCAL_FIRST], ids=["call", "local"])
async def test_one_that_is_accepted_by_sql_is_looked_at_first(shop: LocalFlows, steps: Any) -> None:
    shop.define(*steps, approve=above)
    intent = Sql(shop).accepted(BIG)
    row = await shop.row(intent)
    assert (row["status"], row["approval"]) == ("unfrozen", "undecided")
    await waits(shop, intent)
    evidence = await told(shop, intent, "asked" if steps is LOCAL_FIRST else "rendered")
    assert evidence["to_status"] == "approval" and evidence["details"]["approval"] == "wanted"
    await shop.act("approve", intent)
    await shop.work(times=4)
    assert await shop.answer(intent) == ("completed", 201)
    assert "charge" in shop.effects() and len(await shop.rows()) == (steps is LOCAL_FIRST)


@pytest.mark.parametrize("steps", [CALLS, LOCAL_FIRST], ids=["call", "local"])
async def test_a_small_one_by_sql_runs_without_a_person(shop: LocalFlows, steps: Any) -> None:
    """And so does all that follows: it is decided once."""
    asked = []

    def approve(params: Any) -> bool:
        asked.append(params)
        return above(params)

    shop.define(*steps, approve=approve)
    intent = Sql(shop).accepted(SMALL)
    await shop.work(times=4)
    assert await shop.answer(intent) == ("completed", 201)
    assert len(asked) == 1


@pytest.mark.parametrize("steps", [CALLS, LOCAL_FIRST], ids=["call", "local"])
async def test_an_operation_that_cannot_say_it_releases_nothing(shop: LocalFlows, steps: Any) -> None:
    shop.define(*steps, approve=lambda params: params["no such"])
    intent = Sql(shop).accepted(SMALL)
    await shop.work(times=3)
    assert shop.effects() == [] and await shop.rows() == []
    await shop.spine.expect(intent, state="failed_retryable", status="held", letters=["unrenderable"])
    assert (await shop.row(intent))["approval"] == "undecided"


@pytest.mark.parametrize("kind", ["call", "local"])
@pytest.mark.parametrize("way", ["python", "sql"])
async def test_a_first_step_that_is_not_wanted_is_no_way_around_the_approval(
    shop: LocalFlows, kind: str, way: str
) -> None:
    make: Any = step if kind == "call" else local
    first = make("receipt" if kind == "call" else "ride", when=lambda params, results: False)
    shop.define(first, step("charge", on_refusal="stop"), approve=above)
    intent = asks(shop) if way == "python" else Sql(shop).accepted(BIG)
    await waits(shop, intent)
    assert await shop.ends(intent) == []
    await shop.act("approve", intent)
    await shop.work(times=4)
    assert await shop.ends(intent) == [(first.name, "skipped"), ("charge", "succeeded")]
    assert shop.effects() == ["charge"] and await shop.rows() == []


async def test_what_was_done_without_it_releases_no_later_step(shop: LocalFlows) -> None:
    """Lost commits had approved and sent the first step: its proof comes while the flow asks again."""
    shop.define(*CALLS, approve=above)
    intent = asks(shop)
    await shop.prove(await shop.row(intent), Succeeded("pay_1"))
    row = await shop.row(intent)
    assert (row["step_name"], row["status"], row["approval"]) == ("ship", "approval", "wanted")
    await waits(shop, intent)
    assert (await shop.act("approve", intent)).status == "unfrozen"
    await shop.work(times=2)
    assert shop.effects() == ["ship"] and await shop.answer(intent) == ("completed", 201)


async def test_what_was_done_without_it_is_undone_by_a_rejection(shop: LocalFlows) -> None:
    shop.define(*CALLS, approve=above)
    intent = asks(shop)
    await shop.prove(await shop.row(intent), Succeeded("pay_1"))
    await shop.act("reject", intent)
    row = await shop.row(intent)
    assert (row["step_name"], row["status"], row["approval"]) == ("refund", "unfrozen", None)
    await shop.work(times=2)
    assert shop.effects() == ["refund"]
    assert await shop.ends(intent) == [("charge", "succeeded"), ("ship", "cancelled"), ("refund", "succeeded")]


async def test_an_ordered_flow_keeps_its_place_through_its_approval_and_its_steps(shop: LocalFlows) -> None:
    shop.define(*LOCAL_FIRST, approve=above, ordering_key="/customer")

    def accepted(key: str, amount: int) -> UUID:
        params = {"amount": amount, "customer": "c"}
        decided = shop.spine.accept(key, operation="order", params=params)
        assert isinstance(decided, Accepted)
        return decided.intent_id

    async def statuses() -> list[str | None]:
        return [await shop.spine.status(each) for each in intents]

    intents = [accepted("a", SMALL), accepted("b", BIG), accepted("c", SMALL)]
    assert await statuses() == ["unfrozen", "approval", "waiting"]
    assert (await shop.act("approve", intents[1])).status == "waiting"
    await shop.work(times=8)
    assert await statuses() == [None, None, None]
    for before, after in pairwise(intents):
        promoted = await told(shop, after, "promoted")
        assert (promoted["to_status"], promoted["details"]["after"]) == ("unfrozen", str(before))
    assert len(await shop.rows()) == 3 and shop.effects() == ["charge"] * 3


async def test_no_role_of_a_program_begins_a_later_step_in_its_place(shop: LocalFlows) -> None:
    """It may write ends of steps and delete rows; what begins in the same statement asks all the same."""
    shop.define(step("charge"), step("ship", on_refusal="stop"), approve=lambda params: True)
    intent = shop.spine.accept("k1", operation="order", asked_by="grace").intent_id
    role = f"idem_daemon_{os.getpid()}_steps"
    with psycopg.connect(shop.spine.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} NOSUPERUSER")
        for statement in grants.statements(role, "daemon"):
            admin.execute(statement)
        try:
            with psycopg.connect(shop.spine.url) as connection:
                connection.execute(f"SET SESSION AUTHORIZATION {role}")
                connection.execute(
                    "INSERT INTO idem.steps (intent_id, step, outbox_id, name, outcome)"
                    " SELECT intent_id, 1, id, 'charge', 'succeeded' FROM idem.outbox WHERE intent_id = %s", [intent],
                )  # fmt: skip
                connection.execute(
                    "WITH gone AS (DELETE FROM idem.outbox WHERE intent_id = %s RETURNING intent_id)"
                    " SELECT idem.begin_step(g.intent_id, 2, '1 day', NULL, 'worker', NULL, NULL, NULL, NULL, false,"
                    "                        false) FROM gone g", [intent],
                )  # fmt: skip
                connection.commit()
        finally:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")
    await shop.work(times=2)
    assert shop.effects() == []
    row = await shop.spine.row(intent)
    assert (row["step_name"], row["status"], row["approval"]) == ("ship", "approval", "wanted")
