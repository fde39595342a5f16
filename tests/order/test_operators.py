"""What an operator sees of blocked keys, and what lets them go on."""

import json
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk
from fix_spine import Spine
from flows.order import Flows, step

from idem.outbox.operator import ages, order
from idem.outbox.values.errors import OperatorRefused
from idem.outcomes import Succeeded

LOST = ["drop_before_acting"]


async def unblock(spine: Spine, intent: UUID, **options: bool) -> order.Unblocked:
    return await spine.run(order.unblock, intent, by="ann", reason="a test", **options)


async def blocked(spine: Spine) -> list[tuple[UUID | None, str | None, int]]:
    return [(each["blocked_by"], each["why"], each["waiting"]) for each in await spine.run(order.blocked)]


async def test_a_refused_head_is_listed_until_an_operator_releases_its_key(spine: Spine) -> None:
    head, follower = spine.accepted("a", ordering_key="o"), spine.accepted("b", ordering_key="o")
    assert await blocked(spine) == [(head, "pending", 1)]
    await spine.work(faults=["decline"])
    assert await blocked(spine) == [(head, "refused", 1)]
    done = await unblock(spine, head)
    assert (done.action, done.was, done.promoted) == ("order_released", "refused", (follower,))
    assert ("operator", "order_released", None) in await spine.evidence(head)
    assert ("operator", "promoted", None) in await spine.evidence(follower)
    assert await blocked(spine) == []
    await spine.work()
    assert spine.effects() == 2
    with pytest.raises(OperatorRefused, match="already completed"):
        await unblock(spine, head)


async def test_a_held_key_is_listed_where_nothing_waits_for_it(spine: Spine) -> None:
    head = await spine.sent(faults=["decline"])
    assert await blocked(spine) == [], "no ordering key, no hold"
    spine.bank.script(None, ["decline"])
    head = spine.accepted("a", ordering_key="o")
    await spine.work()
    assert await blocked(spine) == [(head, "refused", 0)]
    assert (await unblock(spine, head)).promoted == ()
    assert await spine.status(spine.accepted("b", ordering_key="o")) == "pending"


async def test_an_unknown_head_is_skipped_with_a_reason_and_stays_as_it_is(spine: Spine) -> None:
    head, follower = spine.accepted("a", ordering_key="o"), spine.accepted("b", ordering_key="o")
    with pytest.raises(OperatorRefused, match="it is pending: what waits for it goes on as soon as it has ended"):
        await unblock(spine, head, skip=True)
    await spine.work(faults=LOST)
    with pytest.raises(OperatorRefused, match="say --skip"):
        await unblock(spine, head)
    with pytest.raises(OperatorRefused, match="it waits for others itself"):
        await unblock(spine, follower, skip=True)
    done = await unblock(spine, head, skip=True)
    assert (done.action, done.was, done.promoted) == ("order_skipped", "unknown", (follower,))
    with pytest.raises(OperatorRefused, match="out of the order already"):
        await unblock(spine, head, skip=True)
    assert await spine.status(head) == "unknown"
    assert (await spine.work()).claimed == 1
    await spine.reconcile(after=10)
    assert (await spine.status(head), spine.effects()) == (None, 2)


async def test_a_skipped_row_that_comes_back_to_work_waits_behind_the_others(spine: Spine) -> None:
    head, follower = spine.accepted("a", ordering_key="o"), spine.accepted("b", 101, ordering_key="o")
    await spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=head)
    await spine.sweep()
    await unblock(spine, head, skip=True)
    assert (await spine.status(head), await spine.status(follower)) == ("held", "pending")
    last = spine.accepted("c", ordering_key="o")
    spine.accept("a", ordering_key="o")
    assert await spine.status(head) == "waiting"
    assert (await spine.sweep()).promoted == 0
    rows = await spine.column("SELECT intent_id FROM idem.outbox ORDER BY ordering_number")
    assert rows == [follower, last, head]
    await spine.work(times=2)
    assert await spine.status(head) == "pending"
    await spine.work()
    assert spine.effects() == 3


async def test_a_skipped_row_gets_no_place_while_an_accept_of_its_key_is_open(spine: Spine) -> None:
    """Its place is behind that accept, and the accept may find nothing that blocks it: both would run at once."""
    from fix_sql import engine_of

    head = spine.accepted("a", ordering_key="o")
    await spine.work(faults=LOST)
    await unblock(spine, head, skip=True)
    await spine.advance(3600)
    await spine.act("resolve_failed", head, know_it_did_not_happen=True)
    with engine_of(spine.url).connect() as connection:
        spine.acceptor.accept(connection, "t", "pay.keyed", "b", {"amount": 100}, ordering_key="o")
        await spine.act("redrive", head, know_it_did_not_happen=True)
        assert await spine.status(head) == "waiting"
        assert (await spine.sweep()).promoted == 0
        connection.commit()
    assert (await spine.sweep()).promoted == 0
    assert await spine.column("SELECT status FROM idem.outbox ORDER BY ordering_number") == ["pending", "waiting"]
    await spine.work()
    assert await spine.status(head) == "pending"


async def test_a_head_whose_key_is_gone_leaves_a_hold(spine: Spine) -> None:
    """Left at rest until nobody can take it up: it never happened, and nobody has said that the others may go on."""
    spine.know("pay.keyed", "keyed", retry="client")
    head, follower = spine.accepted("a", ordering_key="o"), spine.accepted("b", ordering_key="o")
    await spine.forced("UPDATE idem.outbox SET start_before = now() WHERE intent_id = %(i)s", i=head)
    await spine.sweep()
    year = 365 * 86400.0
    await spine.forced("UPDATE idem.outbox SET start_before = now() + interval '9 years' WHERE status = 'waiting'")
    for _ in range(3):
        await spine.sweep(after=year)
    assert (await spine.status(head), await spine.status(follower)) == (None, "waiting")
    assert await blocked(spine) == [(head, "abandoned", 1)]
    assert (await unblock(spine, head)).promoted == (follower,)


async def test_the_age_of_the_oldest_is_known(spine: Spine) -> None:
    spine.accepted("a", ordering_key="o")
    spine.accepted("b", ordering_key="o")
    await spine.work(faults=["decline"])
    await spine.advance(100)
    found = (await spine.run(ages.ages))["order"]
    assert found["held"] == 1
    assert 100 <= found["oldest"] < 160 and 100 <= found["oldest_held"] < 160


async def test_the_commands(desk: Desk) -> None:
    spine = desk.spine
    head, follower = spine.accepted("a", ordering_key="o"), spine.accepted("b", ordering_key="o")
    shown = await desk.cli("intents", "show", str(follower))
    assert f"behind intent {head}" in shown.out
    await spine.work(faults=["decline"])
    listed = json.loads((await desk.cli("intents", "blocked", "--json")).out)["blocked"]
    assert [(each["blocked_by"], each["why"], each["next"]) for each in listed] == [
        (str(head), "refused", str(follower))
    ]
    assert str(head) in (await desk.cli("intents", "blocked")).out
    refused = await desk.cli("intents", "unblock", str(follower), "--reason", "x", "--skip", "-y")
    assert "it waits for others itself" in refused.err
    done = await desk.cli("intents", "unblock", str(head), "--reason", "the card was replaced", "-y")
    assert f"intent {follower} goes on" in done.out, done
    assert "nothing waits" in (await desk.cli("intents", "blocked")).out


async def test_the_doctor_and_the_status_name_a_held_key(desk: Desk) -> None:
    spine = desk.spine
    head = spine.accepted("a", ordering_key="o")
    spine.accepted("b", ordering_key="o")
    await spine.work(faults=["decline"])
    await spine.advance(7200)
    found = json.loads((await desk.cli("doctor", "--json")).out)
    said = [each["what"] for each in found["findings"] if each["check"] in ("order", "queue") and each["level"] != "ok"]
    assert any("1 ordering key is held because an intent was refused" in each for each in said), said
    assert any(each.startswith("waiting: the oldest of 1 row is waiting for") for each in said), said
    assert "idem intents blocked" in (await desk.cli("status")).out + (await desk.cli("status")).err
    assert head


async def test_the_next_step_of_a_skipped_flow_takes_a_place_behind_the_others(spine: Spine) -> None:
    """Its proof comes while a follower is at work: the step that begins waits, and is not rendered."""
    flows: Any = Flows(spine)
    flows.define(step("charge"), step("ship", on_refusal="stop"), ordering_key="/amount", on_head_refused="continue")
    head, follower = flows.accepted("a"), flows.accepted("b")
    await flows.work(faults=["act_then_drop"])
    await flows.spine.run(order.unblock, head, by="ann", reason="known", skip=True)
    assert [await flows.spine.status(each) for each in (head, follower)] == ["unknown", "pending"]
    await flows.prove(await flows.spine.row(head), Succeeded("pay_1"))
    row = await flows.spine.row(head)
    assert (row["step_name"], row["status"], row["ordering_number"]) == ("ship", "waiting", None)
    await flows.spine.sweep()
    assert await flows.spine.status(head) == "waiting"
    await flows.work(times=4)
    assert flows.effects()[-3:] == ["charge", "ship", "ship"]
    for each in (head, follower):
        await flows.spine.expect(each, state="completed")
