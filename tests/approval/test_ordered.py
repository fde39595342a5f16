"""A call that needs an approval and has an ordering key: it has its place while it waits, and is sent after both."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from approval.waiting import BIG, Waiting
from producers.application import Application, synced

from idem.decisions import Accepted, Retrying

ACCEPT = "SELECT d.intent_id, d.status FROM idem.accept('t', 'pay.keyed', %s, %s, false, %s) AS d"


def accepted(waiting: Waiting, key: str, amount: int) -> UUID:
    decided = waiting.spine.accept(key, amount, ordering_key="o")
    assert isinstance(decided, Accepted)
    return decided.intent_id


async def statuses(waiting: Waiting, *intents: UUID) -> list[str | None]:
    return [await waiting.spine.status(intent) for intent in intents]


def amounts(waiting: Waiting) -> list[int]:
    return [payment.amount for payment in waiting.spine.bank.log.payments()]


async def test_what_is_approved_while_it_is_blocked_waits_for_its_turn(waiting: Waiting) -> None:
    head, big, last = accepted(waiting, "a", 101), accepted(waiting, "b", BIG), accepted(waiting, "c", 103)
    assert await statuses(waiting, head, big, last) == ["pending", "approval", "waiting"]
    done = await waiting.approve(big)
    assert done.status == "waiting"
    assert await statuses(waiting, head, big, last) == ["pending", "waiting", "waiting"]
    row = await waiting.spine.row(big)
    assert row["approval"] == "given" and row["ordering_number"] is not None
    await waiting.spine.work()
    assert await statuses(waiting, head, big, last) == [None, "pending", "waiting"]
    await waiting.spine.work(times=2)
    assert amounts(waiting) == [101, BIG, 103]
    told = await waiting.evidence(big, "approved")
    assert (told["from_status"], told["to_status"]) == ("approval", "waiting")


async def test_nobody_promotes_what_is_not_approved(waiting: Waiting) -> None:
    head, big, last = accepted(waiting, "a", 101), accepted(waiting, "b", BIG), accepted(waiting, "c", 103)
    await waiting.spine.work()
    await waiting.waits_beside(big, 1)
    assert (await waiting.spine.sweep()).promoted == 0
    assert await statuses(waiting, head, big, last) == [None, "approval", "waiting"]
    assert (await waiting.approve(big)).status == "pending", "nothing is before it now"
    await waiting.spine.work(times=2)
    assert amounts(waiting) == [101, BIG, 103]


@pytest.mark.parametrize("action", ["reject", "cancel"])
async def test_the_others_go_on_when_it_is_not_wanted(waiting: Waiting, action: str) -> None:
    """Also where its operation holds its followers back: a person has decided, and no provider refused it."""
    big, follower = accepted(waiting, "a", BIG), accepted(waiting, "b", 102)
    assert (await waiting.spine.row(big))["refusal_holds"] is True
    await waiting.waits(big)
    await waiting.spine.act(action, big)
    assert await statuses(waiting, big, follower) == [None, "pending"]
    await waiting.spine.work()
    assert amounts(waiting) == [102]


async def test_a_blocked_one_can_be_rejected_too(waiting: Waiting) -> None:
    head, big, last = accepted(waiting, "a", 101), accepted(waiting, "b", BIG), accepted(waiting, "c", 103)
    await waiting.reject(big)
    assert await statuses(waiting, head, big, last) == ["pending", None, "waiting"], "the first one blocks it still"
    await waiting.spine.work(times=2)
    assert amounts(waiting) == [101, 103]


@pytest.mark.parametrize("way", ["retry", "redrive"])
async def test_at_rest_and_back_it_asks_again_whatever_its_order(waiting: Waiting, way: str) -> None:
    head, big = accepted(waiting, "a", 101), accepted(waiting, "b", BIG)
    await waiting.at_rest(big)
    assert await statuses(waiting, head, big) == ["held", "held"]
    if way == "retry":
        decided = waiting.spine.accept("b", BIG, ordering_key="o")
        assert isinstance(decided, Retrying) and decided.status == "approval"
    else:
        assert (await waiting.spine.act("redrive", big)).status == "approval"
    assert (await waiting.approve(big)).status == "waiting", "the one before it is at rest, and blocks it"
    assert isinstance(waiting.spine.accept("a", 101, ordering_key="o"), Retrying)
    await waiting.spine.work(times=2)
    assert amounts(waiting) == [101, BIG]


async def test_one_that_was_approved_waits_only_for_its_order_after_rest(waiting: Waiting) -> None:
    head, big = accepted(waiting, "a", 101), accepted(waiting, "b", BIG)
    await waiting.approve(big)
    await waiting.at_rest(big)
    decided = waiting.spine.accept("b", BIG, ordering_key="o")
    assert isinstance(decided, Retrying) and decided.status == "waiting"
    assert (await waiting.spine.row(big))["approval"] == "given"
    assert await waiting.spine.works() == 0 and await waiting.spine.status(head) == "held"


async def test_what_is_accepted_by_sql_is_looked_at_when_it_is_its_turn(
    waiting: Waiting, application: Application
) -> None:
    def ask(key: str, amount: int) -> Any:
        with psycopg.connect(application.url) as connection:
            return connection.execute(ACCEPT, (key, f'{{"amount": {amount}}}', "o")).fetchone()

    synced(application.url, waiting.spine.catalogue)
    (head, first), (big, second), (last, third) = ask("a", 101), ask("b", BIG), ask("c", 103)
    assert [first, second, third] == ["unfrozen", "waiting", "waiting"]
    assert (await waiting.spine.row(big))["approval"] == "undecided"
    # One pass renders the first and sends it; its end promotes the next one, which is not rendered yet.
    while await waiting.spine.status(head) is not None:
        await waiting.spine.work()
    promoted = await waiting.evidence(big, "promoted")
    assert promoted["to_status"] == "unfrozen"
    await waiting.spine.work()
    assert amounts(waiting) == [101]
    await waiting.waits_beside(big, 1)
    assert await waiting.spine.status(last) == "waiting"
    assert (await waiting.approve(big)).status == "pending"
    await waiting.spine.work(times=4)
    assert amounts(waiting) == [101, BIG, 103]


async def test_the_database_itself_releases_nothing_that_is_blocked(waiting: Waiting) -> None:
    accepted(waiting, "a", 101)
    big = accepted(waiting, "b", BIG)
    await waiting.approve(big)
    with pytest.raises(psycopg.errors.CheckViolation, match="blocked by its ordering key"):
        await waiting.spine.execute("UPDATE idem.outbox SET status = 'pending' WHERE intent_id = %(i)s", i=big)
