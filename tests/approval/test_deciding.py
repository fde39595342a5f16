"""Approve and reject: two persons, one winner, who and why, and the answer that is stored for ever."""

import json

import pytest
from approval.waiting import BIG, OWN, SMALL, Waiting
from fix_racing import race
from fix_steps import claim

from idem import Answer
from idem.decisions import Accepted, Replay
from idem.errors import ConfigError, OperatorRefused
from idem.outbox.domain.approval import REJECTED
from idem.outbox.operator import approvals
from idem.outbox.operator.actions import Done

ROUNDS = 10


async def test_a_rejection_answers_the_key_for_ever(waiting: Waiting) -> None:
    spine = waiting.spine
    intent = waiting.asks(asked_by="shop")
    done = await waiting.reject(intent, by="ann", reason="not this customer")
    assert (done.action, done.state, done.status) == ("rejected", "completed", None)
    told = await waiting.evidence(intent, "rejected")
    assert (told["source"], told["from_status"], told["to_state"]) == ("operator", "approval", "completed")
    assert told["details"] == {"by": "ann", "reason": "not this customer", "version": 1}
    assert await spine.value("SELECT outcome FROM idem.intents WHERE id = %(i)s", i=intent) == "rejected"
    event = await spine.one("SELECT type, payload FROM idem.events WHERE aggregateid = %(i)s", i=intent)
    assert (event["type"], event["payload"]["outcome"]) == ("completed", "rejected")
    first = spine.accept(amount=BIG)
    assert isinstance(first, Replay)
    assert first.answer.body == REJECTED.body and first.answer.status == 403
    assert json.loads(first.answer.body)["code"] == "rejected_by_operator"
    spine.operate("pay.keyed", rejected=lambda intent: Answer(410, {"other": 1}))
    again = spine.accept(amount=BIG)
    assert isinstance(again, Replay) and again.answer == first.answer, "byte for byte, whatever it would say now"
    for action in ("approve", "reject", "cancel", "redrive"):
        await waiting.refuses("already completed", action, intent)
    assert await spine.works() == 0


async def test_the_operation_says_what_a_rejection_answers(waiting: Waiting) -> None:
    intent = waiting.asks(operation="pay.keyed.two", asked_by="grace")
    await waiting.reject(intent, by="grace")
    again = waiting.spine.accept(amount=BIG, operation="pay.keyed.two", asked_by="grace")
    assert isinstance(again, Replay) and (again.answer.status, again.answer.body) == (OWN.status, OWN.body)


async def test_an_answer_that_fails_changes_nothing(waiting: Waiting) -> None:
    def wrong(intent: str) -> Answer:
        raise KeyError("a bug")

    waiting.define(rejected=wrong)
    intent = waiting.asks()
    await waiting.refuses("could not make its `rejected` answer", "reject", intent)
    waiting.define(rejected=lambda intent: Answer(503, {}))
    await waiting.refuses("status 503", "reject", intent)
    await waiting.waits(intent)
    waiting.define(rejected=lambda intent: Answer(403, {"intent": intent}))
    await waiting.reject(intent)
    again = waiting.spine.accept(amount=BIG)
    assert isinstance(again, Replay) and json.loads(again.answer.body) == {"intent": str(intent)}


@pytest.mark.parametrize("by", ["grace", "Grace@laptop", " GRACE @x", "grace@shop.example"])
async def test_the_one_who_asked_does_not_approve(waiting: Waiting, by: str) -> None:
    intent = waiting.asks(operation="pay.keyed.two", asked_by="grace@shop.example")
    await waiting.refuses("grace@shop.example asked for it", "approve", intent, by=by)
    await waiting.waits(intent)
    assert (await waiting.approve(intent, by="ann@laptop")).status == "pending"


async def test_another_person_needs_to_know_who_asks(waiting: Waiting) -> None:
    for nobody in (None, "", "  "):
        with pytest.raises(ConfigError, match="say who asks"):
            waiting.spine.accept(amount=BIG, operation="pay.keyed.two", asked_by=nobody)
    assert await waiting.spine.all("SELECT FROM idem.idempotency_keys") == []
    decided = waiting.spine.accept(amount=SMALL, operation="pay.keyed")
    assert isinstance(decided, Accepted)


async def test_anybody_approves_where_one_person_is_enough(waiting: Waiting) -> None:
    assert (await waiting.approve(waiting.asks(asked_by="grace"), by="grace")).status == "pending"


async def test_a_decision_is_about_the_version_that_was_seen(waiting: Waiting) -> None:
    intent = waiting.asks()
    await waiting.at_rest(intent)
    waiting.spine.accept(amount=BIG)
    for action in ("approve", "reject"):
        await waiting.refuses("changed after you read it", action, intent, version=1)
        await waiting.refuses("say why", action, intent, reason=" ")
    await waiting.waits(intent)


async def test_of_two_approvals_one_is_told_that_it_is_done(waiting: Waiting) -> None:
    spine = waiting.spine
    for number in range(ROUNDS):
        intent = waiting.asks(f"k{number}")
        results = await race(waiting.approve(intent, by="ann"), waiting.approve(intent, by="bob"))
        assert sorted(type(each).__name__ for each in results) == ["Done", "OperatorRefused"]
        assert [kind for _, kind, _ in await spine.evidence(intent)] == ["accepted", "approved"]
    await spine.work(times=2)
    assert spine.effects() == ROUNDS


async def test_either_the_approval_or_the_rejection_wins(waiting: Waiting) -> None:
    spine, approved = waiting.spine, 0
    for number in range(ROUNDS):
        intent = waiting.asks(f"k{number}")
        yes, no = await race(waiting.approve(intent), waiting.reject(intent))
        assert isinstance(yes, Done) != isinstance(no, Done)
        if isinstance(yes, Done):
            approved += 1
            assert await spine.status(intent) == "pending"
        else:
            assert "already completed" in str(yes) or "settled while you were deciding" in str(yes)
            assert await spine.status(intent) is None
    await spine.work(times=2)
    assert spine.effects() == approved, "what was rejected was never sent"


async def test_an_approval_meets_the_sweeper_the_worker_and_a_cancel(waiting: Waiting) -> None:
    spine = waiting.spine
    for number in range(ROUNDS):
        intent = waiting.asks(f"k{number}")
        yes, claimed, gone, _ = await race(
            waiting.approve(intent), claim(spine, limit=1), spine.act("cancel", intent), spine.sweep()
        )
        if isinstance(yes, Done):
            assert isinstance(gone, OperatorRefused)
            assert await spine.status(intent) == ("claimed" if claimed else "pending")
            await spine.forced("DELETE FROM idem.outbox WHERE intent_id = %(i)s", i=intent)
        else:
            assert isinstance(gone, Done) and claimed == []


async def test_a_row_that_another_session_holds_is_not_waited_for_long(waiting: Waiting) -> None:
    import psycopg

    intent = waiting.asks()
    with psycopg.connect(waiting.spine.url) as other:
        other.execute("SELECT FROM idem.outbox FOR UPDATE")
        await waiting.refuses("locked by another transaction", "approve", intent)
        await waiting.refuses("locked by another transaction", "reject", intent)
    assert (await waiting.approve(intent)).status == "pending"


async def test_who_has_no_right_to_approve_is_told_how_to_get_it(waiting: Waiting) -> None:
    """The role of the daemons does everything but this."""
    import os

    import psycopg
    from fix_sql import query

    from idem.migrations import runner
    from idem.outbox.database.pool import Database

    spine, role = waiting.spine, f"idem_daemon_{os.getpid()}_deciding"
    intent = waiting.asks()
    query(spine.url, f"CREATE ROLE {role}")
    try:
        runner.grant(spine.url, role, "daemon")
        database = Database(f"{spine.url}{'&' if '?' in spine.url else '?'}options=-crole%3D{role}", name="idem-test")
        await database.open()
        async with database.connection() as connection:
            with pytest.raises(OperatorRefused, match="--as operator"):
                await approvals.approve(connection, spine.catalogue, intent, by="ann", reason="r", version=1)
            runner.grant(spine.url, role, "operator")
            done = await approvals.approve(connection, spine.catalogue, intent, by="ann", reason="r", version=1)
        assert done.status == "pending"
        await database.close()
    finally:
        with psycopg.connect(spine.url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")
