"""Intents with one ordering key run one at a time, in the order of their accepts; what blocks, and what goes on."""

from typing import Any
from uuid import UUID

import pytest
from fix_spine import Spine

from idem.decisions import InProgress
from idem.outbox.domain.outcomes import Refused
from idem.outbox.settle.order import promote_page

LOST = ["drop_before_acting"]


def ordered(spine: Spine, count: int, order: str = "o", **options: Any) -> list[UUID]:
    """Accept so many intents with one ordering key, one after the other."""
    return [spine.accepted(f"{order}-{n}", 100 + n, ordering_key=order, **options) for n in range(count)]


async def statuses(spine: Spine, intents: list[UUID]) -> list[str | None]:
    return [await spine.status(intent) for intent in intents]


async def test_followers_wait_and_each_settlement_promotes_the_next(spine: Spine) -> None:
    """Hazard 30: no sweeper takes part."""
    intents = ordered(spine, 3)
    assert await statuses(spine, intents) == ["pending", "waiting", "waiting"]
    assert (await spine.work()).claimed == 1
    assert await statuses(spine, intents) == [None, "pending", "waiting"]
    assert (await spine.work()).claimed == 1
    assert await statuses(spine, intents) == [None, None, "pending"]
    await spine.work()
    assert spine.effects() == 3
    assert await spine.evidence(intents[1]) == [
        ("accept", "accepted", None), ("worker", "promoted", None), ("worker", "report", "succeeded"),
    ]  # fmt: skip
    after = await spine.value(
        "SELECT details ->> 'after' FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'promoted'", i=intents[1]
    )
    assert after == str(intents[0])


async def test_other_keys_tenants_and_groups_are_other_orders(spine: Spine) -> None:
    spine.know("pay.other", "keyed")
    spine.know("pay.shared", "keyed", ordering_group="pay.keyed")
    one = spine.accepted("a", ordering_key="o")
    others = [
        spine.accepted("b", ordering_key="p"), spine.accepted("c", ordering_key="o", tenant="u"),
        spine.accepted("d", ordering_key="o", operation="pay.other"), spine.accepted("e"),
    ]  # fmt: skip
    shared = spine.accepted("f", ordering_key="o", operation="pay.shared")
    assert await statuses(spine, [one, *others, shared]) == ["pending"] * 5 + ["waiting"]


async def test_the_key_may_be_a_field_of_the_params(spine: Spine) -> None:
    spine.know("pay.keyed", "keyed", ordering_key="/amount")
    first, second = spine.accepted("a", 7), spine.accepted("b", 7)
    assert await statuses(spine, [first, second]) == ["pending", "waiting"]
    row = await spine.row(second)
    assert (row["ordering_group"], row["ordering_key"], row["refusal_holds"]) == ("pay.keyed", "7", True)


async def test_an_unknown_head_holds_its_followers_until_the_verdict(spine: Spine) -> None:
    head, follower = ordered(spine, 2)
    await spine.work(faults=LOST)
    assert await statuses(spine, [head, follower]) == ["unknown", "waiting"]
    assert (await spine.work()).claimed == 0
    assert (await spine.sweep()).promoted == 0
    await spine.reconcile(after=10)
    assert await statuses(spine, [head, follower]) == [None, "pending"]
    await spine.work()
    assert spine.effects() == 2


async def test_an_awaiting_head_holds_its_followers(spine: Spine) -> None:
    head, follower = ordered(spine, 2)
    await spine.work(faults=["pending"])
    assert await statuses(spine, [head, follower]) == ["awaiting", "waiting"]
    assert (await spine.sweep()).promoted == 0


async def test_a_head_at_rest_holds_its_followers_until_its_client_takes_it_up(spine: Spine) -> None:
    head, follower = ordered(spine, 2)
    await spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=head)
    await spine.sweep()
    assert await statuses(spine, [head, follower]) == ["held", "waiting"]
    assert (await spine.work()).claimed == 0
    spine.accept("o-0", 100)
    assert await statuses(spine, [head, follower]) == ["pending", "waiting"]
    await spine.work(times=2)
    assert spine.effects() == 2


async def test_a_follower_that_waits_too_long_rests_and_waits_again_when_it_is_taken_up(spine: Spine) -> None:
    head, follower, last = ordered(spine, 3)
    await spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=follower)
    await spine.sweep()
    assert await spine.letters(follower) == ["too_late"]
    assert await statuses(spine, [head, follower, last]) == ["pending", "held", "waiting"]
    await spine.act("redrive", follower)
    assert await statuses(spine, [head, follower, last]) == ["pending", "waiting", "waiting"]
    await spine.work()
    assert await statuses(spine, [head, follower, last]) == [None, "pending", "waiting"]
    await spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=follower)
    await spine.sweep()
    await spine.work()
    assert await statuses(spine, [follower, last]) == ["held", "waiting"], "a row at rest holds those behind it"
    spine.accept("o-1", 101)
    await spine.work(times=2)
    assert spine.effects() == 3


async def test_a_refused_head_holds_its_key_until_an_operator_says_go_on(spine: Spine) -> None:
    head, follower = ordered(spine, 2)
    await spine.work(faults=["decline"])
    assert await statuses(spine, [head, follower]) == [None, "waiting"]
    assert await spine.one("SELECT intent_id, why FROM idem.order_holds") == {"intent_id": head, "why": "refused"}
    assert (await spine.sweep()).promoted == 0
    assert (await spine.status(spine.accepted("late", ordering_key="o"))) == "waiting"
    assert (await spine.work()).claimed == 0


async def test_a_refused_head_may_let_its_followers_go_on(spine: Spine) -> None:
    spine.know("pay.keyed", "keyed", on_head_refused="continue")
    head, follower = ordered(spine, 2)
    await spine.work(faults=["decline"])
    assert await statuses(spine, [head, follower]) == [None, "pending"]
    assert await spine.lacks("FROM idem.order_holds")


async def test_a_cancelled_head_lets_its_followers_go_on_and_a_cancelled_follower_nothing(spine: Spine) -> None:
    head, middle, last = ordered(spine, 3)
    await spine.act("cancel", middle)
    assert await statuses(spine, [head, middle, last]) == ["pending", None, "waiting"]
    await spine.act("cancel", head)
    assert await statuses(spine, [last]) == ["pending"]
    assert await spine.lacks("FROM idem.order_holds")


async def test_an_operators_word_lets_the_next_one_go_or_holds_it(spine: Spine) -> None:
    first, second, third = ordered(spine, 3)
    await spine.work(faults=LOST)
    await spine.advance(3600)
    await spine.act("resolve_completed", first)
    assert await statuses(spine, [second, third]) == ["pending", "waiting"]
    await spine.work(faults=LOST)
    await spine.advance(3600)
    await spine.act("resolve_completed", second, outcome=Refused("pay_9", "declined"))
    assert await statuses(spine, [third]) == ["waiting"]
    assert await spine.value("SELECT intent_id FROM idem.order_holds") == second


async def test_the_client_is_told_what_it_waits_for(spine: Spine) -> None:
    ordered(spine, 2)
    decided = spine.accept("o-1", 101, ordering_key="o")
    assert isinstance(decided, InProgress)
    assert (decided.status, decided.retry_after) == ("waiting", 5.0)


async def test_a_row_that_lost_commits_concern_is_not_promoted_before_it_is_doubted(spine: Spine) -> None:
    head, follower = ordered(spine, 2)
    await spine.execute("INSERT INTO idem.doubts (outbox_id, details) SELECT id, '{}' FROM idem.outbox")
    await spine.execute("DELETE FROM idem.doubts WHERE outbox_id <> %(r)s", r=(await spine.row(follower))["id"])
    await spine.work()
    assert await statuses(spine, [head, follower]) == [None, "waiting"]
    assert await spine.run(promote_page, batch=10) == ([], None)
    await spine.execute("DELETE FROM idem.doubts")
    assert (await spine.sweep()).promoted == 1


@pytest.mark.parametrize("provider", ["keyed", "keyless"])
async def test_the_key_of_one_call_costs_the_others_no_order(spine: Spine, provider: str) -> None:
    """A busy order in a lane holds up no row of the lane that has none."""
    ordered(spine, 3, operation=f"pay.{provider}")
    free = [spine.accepted(f"free-{n}", 200 + n, operation=f"pay.{provider}") for n in range(4)]
    assert (await spine.work()).claimed == 5
    assert await statuses(spine, free) == [None] * 4
