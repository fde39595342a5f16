"""Local steps: a function writes its own rows in the transaction that ends its step, once, wherever it stands."""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any

import pytest
from fix_waiting import running, until
from flows.local import WRITE, before, local, writes
from flows.order import step
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem.outbox.worker.worker import Worker
from idem.outcomes import Refused

FOUR = (
    local("ride", returned={"ride": 7}),
    step("charge", on_refusal="compensate"),
    local("pay", on_refusal="compensate"),
    step("receipt", on_refusal="compensate"),
    step("refund", undoes="charge"),
    local("unride", undoes="ride"),
)
"""Local, call, local, call; a call and a local step are undone."""


async def test_local_steps_and_calls_follow_each_other(shop: Any) -> None:
    shop.define(*FOUR)
    intent = shop.accepted()
    assert (await shop.row(intent))["status"] == "unfrozen"
    await shop.work(times=3)
    assert await shop.rows() == [("ride", ""), ("pay", "ride:succeeded charge:succeeded")]
    assert shop.effects() == ["charge", "receipt"]
    assert [name for name, _ in await shop.ends(intent)] == ["ride", "charge", "pay", "receipt"]
    found = await shop.spine.one("SELECT fields FROM idem.steps WHERE intent_id = %(i)s AND name = 'ride'", i=intent)
    assert found["fields"] == {"ride": 7}
    await shop.spine.expect(intent, state="completed", letters=[])
    assert await shop.answer(intent) == ("completed", 201)


async def test_a_flow_of_local_steps_alone_is_run_by_one_pass_and_gives_the_answer(shop: Any) -> None:
    shop.define(local("ride"), local("pay", on_refusal="stop"))
    intent = shop.accepted()
    await shop.work()
    assert [name for name, _ in await shop.rows()] == ["ride", "pay"]
    assert await shop.answer(intent) == ("completed", 201)
    kinds = [row["kind"] for row in await shop.spine.all(
        "SELECT kind FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id", i=intent)]  # fmt: skip
    assert sorted(kinds) == ["accepted", "begun", "run", "run"]


async def test_a_refusal_of_the_first_step_is_the_answer(shop: Any) -> None:
    shop.define(local("ride", returned=Refused(None, "no car")), step("charge", on_refusal="stop"))
    intent = shop.accepted()
    await shop.work()
    assert await shop.ends(intent) == [("ride", "refused")]
    assert await shop.answer(intent) == ("completed", 402)
    assert (await shop.intent(intent))["outcome"] == "refused"
    assert shop.effects() == []


async def test_a_refused_local_step_has_what_was_done_undone(shop: Any) -> None:
    refused = local("pay", returned=Refused(None, "no"), on_refusal="compensate")
    shop.define(FOUR[0], FOUR[1], refused, *FOUR[4:])
    intent = shop.accepted()
    await shop.work(times=3)
    assert await shop.ends(intent) == [
        ("ride", "succeeded"), ("charge", "succeeded"), ("pay", "refused"), ("refund", "succeeded"),
        ("unride", "succeeded"),
    ]  # fmt: skip
    assert [name for name, _ in await shop.rows()] == ["ride", "pay", "unride"]
    assert await shop.answer(intent) == ("completed", 402)


async def test_a_refused_local_step_may_wait_for_an_operator(shop: Any) -> None:
    said: list[Any] = [Refused(None, "no"), None]
    pay = local("pay", lambda db, params, results: said.pop(0), on_refusal="operator")
    shop.define(local("ride"), pay)
    intent = shop.accepted()
    await shop.work()
    assert await shop.spine.letters(intent) == ["partial"]
    await shop.act("redrive", intent)
    await shop.work()
    assert await shop.ends(intent) == [("ride", "succeeded"), ("pay", "succeeded")]
    assert await shop.spine.letters(intent) == []


async def test_a_local_step_completes_the_key_while_later_ones_run(shop: Any) -> None:
    shop.define(local("ride", completes=True), step("charge", on_refusal="operator"))
    intent = shop.accepted()
    await shop.work(faults=["503"])
    assert await shop.answer(intent) == ("completed", 201)
    assert (await shop.intent(intent))["state"] == "unknown"
    for _ in range(4):
        await shop.spine.reconcile(after=200, hasten=True)
        await shop.work()
    assert (await shop.intent(intent))["state"] == "completed"
    assert await shop.answer(intent) == ("completed", 201)
    assert shop.effects() == ["charge"]


@pytest.mark.parametrize("place", ["first", "middle", "last", "only"])
async def test_a_step_that_is_not_wanted_is_skipped_with_evidence(shop: Any, place: str) -> None:
    never = local("never", when=lambda params, results: params["amount"] > 1000, on_refusal="stop")
    steps = {
        "first": (never, step("charge", on_refusal="stop")),
        "middle": (local("ride"), never, step("charge", on_refusal="stop")),
        "last": (step("charge"), never),
        "only": (never,),
    }[place]
    shop.define(*steps)
    intent = shop.accepted()
    await shop.work(times=2)
    assert ("never", "skipped") in await shop.ends(intent)
    assert "never" not in [name for name, _ in await shop.rows()]
    await shop.spine.expect(intent, state="completed", letters=[])
    assert await shop.answer(intent) == ("completed", 201)
    assert shop.effects() == ([] if place == "only" else ["charge"])


@pytest.mark.parametrize("last", ["call", "local", "skipped call", "skipped local"])
async def test_the_answer_of_a_flow_is_kept_for_its_answer_ttl_however_it_ends(shop: Any, last: str) -> None:
    made = local if last.endswith("local") else step
    wanted = {"when": lambda params, results: False} if last.startswith("skipped") else {}
    shop.define(step("charge"), made("receipt", on_refusal="stop", **wanted), answer_ttl=1000 * 3600.0)
    intent = shop.accepted()
    await shop.work(times=2)
    key = await shop.key(intent)
    assert key["expires_at"] - key["completed_at"] == timedelta(hours=1000)


async def sees_nothing_of(shop: Any, intent: Any) -> None:
    assert await shop.rows() == []
    assert await shop.ends(intent) == []


async def test_an_exception_leaves_nothing_and_the_step_is_tried_later_and_later(shop: Any) -> None:
    broken = [True]

    def run(db: Session, params: Any, results: Any) -> None:
        db.execute(WRITE, {"step": "ride", "amount": 1, "said": ""})
        if broken[0]:
            raise ValueError("no cars today")

    shop.define(local("ride", run))
    intent = shop.accepted()
    for failures, wait in enumerate((1, 4, 16), 1):
        await shop.work(times=2)  # the second pass finds it not due
        row = await shop.row(intent)
        assert (row["failures"], row["status"]) == (failures, "unfrozen")
        left = await shop.spine.value(
            "SELECT extract(epoch FROM available_at - statement_timestamp())::float8 FROM idem.outbox"
        )
        assert wait - 3 < left < wait * 1.2 + 1
        await sees_nothing_of(shop, intent)
        await shop.due()
    failed = await shop.spine.all("SELECT details FROM idem.evidence WHERE kind = 'failed' ORDER BY id")
    assert [each["details"]["error"] for each in failed] == ["ValueError"] * 3
    assert failed[0]["details"]["note"] == "no cars today"
    broken[0] = False
    await shop.work()
    assert len(await shop.rows()) == 1
    await shop.spine.expect(intent, state="completed", letters=[])


@pytest.mark.parametrize("again", ["redrive", "client"])
async def test_after_so_many_failures_it_rests_and_is_taken_up_again(shop: Any, again: str) -> None:
    broken = [True]

    def run(db: Session, params: Any, results: Any) -> None:
        if broken[0]:
            raise KeyError("car")
        writes("pay")(db, params, results)

    shop.define(local("ride"), local("pay", run, on_refusal="operator"))
    intent = shop.accepted()
    for _ in range(8):
        await shop.work()
        await shop.due()
    await shop.spine.expect(intent, state="failed_retryable", letters=["unrenderable"])
    (letter,) = await shop.spine.all("SELECT details FROM idem.dead_letters")
    assert letter["details"]["step"] == "pay" and letter["details"]["done"] == ["ride"]
    assert (letter["details"]["error"], letter["details"]["attempts"]) == ("KeyError", 8)
    assert (await shop.row(intent))["failures"] == 0
    if again == "redrive":
        await shop.act("redrive", intent)
    else:
        shop.spine.accept(operation="order")
    assert (await shop.row(intent))["status"] == "unfrozen"
    broken[0] = False
    await shop.work()
    assert [name for name, _ in await shop.rows()] == ["ride", "pay"]
    await shop.spine.expect(intent, state="completed", letters=[])


def commits(db: Session, params: Any, results: Any) -> None:
    db.execute(WRITE, {"step": "ride", "amount": 1, "said": ""})
    db.commit()


def rolls_back(db: Session, params: Any, results: Any) -> None:
    db.execute(WRITE, {"step": "ride", "amount": 1, "said": ""})
    db.rollback()


def hides_it(db: Session, params: Any, results: Any) -> None:
    db.execute(WRITE, {"step": "ride", "amount": 1, "said": ""})
    with contextlib.suppress(Exception):
        db.commit()


def rolls_back_by_hand(db: Session, params: Any, results: Any) -> None:
    db.connection().exec_driver_sql("ROLLBACK")
    db.connection().exec_driver_sql("SELECT 1")


@pytest.mark.parametrize("run", [commits, rolls_back, hides_it, rolls_back_by_hand])
async def test_a_function_that_ends_the_transaction_is_refused_at_once(shop: Any, run: Any) -> None:
    shop.define(local("ride", run))
    intent = shop.accepted()
    await shop.work()
    await shop.spine.expect(intent, state="failed_retryable", letters=["unrenderable"])
    (letter,) = await shop.spine.all("SELECT details FROM idem.dead_letters")
    assert letter["details"]["error"] == "OwnTransaction"
    assert "the local step" in letter["details"]["note"]
    await sees_nothing_of(shop, intent)


@pytest.mark.parametrize(
    "returned", [7, "text", {"at": object()}, {"nan": float("nan")}, {"text": "a\0b"}, {"long": "x" * 5000}]
)
async def test_what_cannot_be_kept_is_a_failure_and_leaves_nothing(shop: Any, returned: Any) -> None:
    shop.define(local("ride", returned=returned))
    intent = shop.accepted()
    await shop.work()
    assert (await shop.row(intent))["failures"] == 1
    await sees_nothing_of(shop, intent)


async def with_async_session(db: AsyncSession, params: Any, results: Any) -> dict[str, int]:
    await db.execute(WRITE, {"step": "ride", "amount": 1, "said": before(results)})
    return {"ride": 8}


async def with_async_connection(db: AsyncConnection, params: Any, results: Any) -> None:
    await db.execute(WRITE, {"step": "ride", "amount": 1, "said": before(results)})


def with_connection(db: Connection, params: Any, results: Any) -> None:
    db.execute(WRITE, {"step": "ride", "amount": 1, "said": before(results)})


def without_annotation(db, params, results):  # type: ignore[no-untyped-def]
    assert isinstance(db, Session)
    with_connection(db, params, results)  # type: ignore[arg-type]


@pytest.mark.parametrize("run", [with_async_session, with_async_connection, with_connection, without_annotation])
async def test_every_kind_of_session(shop: Any, run: Any) -> None:
    shop.define(local("ride", run), local("pay", on_refusal="stop"))
    intent = shop.accepted()
    await shop.work()
    assert await shop.rows() == [("ride", ""), ("pay", "ride:succeeded")]
    await shop.spine.expect(intent, state="completed", letters=[])


async def test_a_function_that_takes_too_long_is_stopped_and_leaves_nothing(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = [True]

    def run(db: Session, params: Any, results: Any) -> None:
        db.execute(WRITE, {"step": "ride", "amount": 1, "said": ""})
        if hang[0]:
            db.execute(text("SELECT pg_sleep(30)"))

    shop.define(local("ride", run))
    intent = shop.accepted()
    worker = Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings)
    monkeypatch.setattr(worker._local_steps._executors, "_limit", 1.0)
    began = time.monotonic()
    await worker.run_once()
    assert time.monotonic() - began < 20
    await sees_nothing_of(shop, intent)
    assert (await shop.row(intent))["failures"] == 1
    hang[0] = False
    await shop.due()
    await worker.run_once()
    assert len(await shop.rows()) == 1
    await worker.close()


async def test_a_step_in_the_callers_hands_waits_and_is_run_afterwards(shop: Any) -> None:
    """Another session holds the key: the function is not run in vain."""
    ran: list[int] = []

    def run(db: Session, params: Any, results: Any) -> None:
        ran.append(1)
        writes("ride")(db, params, results)

    shop.define(local("ride", run))
    intent = shop.accepted()
    async with shop.spine.database.connection() as connection, connection.transaction():
        await connection.execute("SELECT FROM idem.idempotency_keys FOR UPDATE")
        worker = Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings)
        passing = asyncio.create_task(worker.run_once())
        await asyncio.sleep(1)
        assert not ran
    await passing
    await worker.close()
    assert ran == [1]
    await shop.spine.expect(intent, state="completed", letters=[])


async def test_two_workers_run_each_step_once(shop: Any) -> None:
    shop.define(*FOUR)
    for number in range(30):
        shop.accepted(f"k{number}")
    workers = [Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings) for _ in range(2)]
    async with running(workers[0]), running(workers[1]):
        await until(lambda: shop.spine.all("SELECT FROM idem.intents WHERE state = 'completed' HAVING count(*) = 30"))
    counted = await shop.spine.all("SELECT step, count(*) AS n FROM public.rows GROUP BY step ORDER BY step")
    assert counted == [{"step": "pay", "n": 30}, {"step": "ride", "n": 30}]
    assert sorted(shop.effects()) == ["charge"] * 30 + ["receipt"] * 30


async def test_a_flow_does_not_wait_for_a_poll_between_its_steps(shop: Any) -> None:
    shop.define(*FOUR)
    settings = shop.spine.settings.model_copy(update={"poll": 600.0})
    intent = shop.accepted()
    async with running(Worker(shop.spine.database, shop.spine.catalogue, settings)):
        await until(lambda: shop.spine.all("SELECT FROM idem.intents WHERE state = 'completed'"), seconds=20)
    await shop.spine.expect(intent, state="completed", letters=[])


async def test_a_cancel_between_steps_undoes_the_local_ones(shop: Any) -> None:
    shop.define(local("ride"), step("charge", on_refusal="compensate"), local("unride", undoes="ride"))
    intent = shop.accepted()
    worker = Worker(shop.spine.database, shop.spine.catalogue, shop.spine.settings)
    await worker._local_steps.once()
    await worker.close()
    await shop.act("cancel", intent)
    await shop.work()
    assert await shop.ends(intent) == [("ride", "succeeded"), ("charge", "cancelled"), ("unride", "succeeded")]
    assert [name for name, _ in await shop.rows()] == ["ride", "unride"]
    assert (await shop.intent(intent))["outcome"] == "cancelled"
    assert shop.effects() == []


async def test_a_local_step_itself_is_cancelled_before_it_runs(shop: Any) -> None:
    shop.define(local("ride"))
    intent = shop.accepted()
    await shop.act("cancel", intent)
    await shop.work()
    assert await shop.rows() == []
    assert (await shop.intent(intent))["outcome"] == "cancelled"


async def test_a_compensation_that_keeps_failing_is_partial_and_is_taken_up_again(shop: Any) -> None:
    broken = [True]

    def undo(db: Session, params: Any, results: Any) -> None:
        if broken[0]:
            raise ValueError("not now")
        writes("unride")(db, params, results)

    shop.define(
        local("ride"), local("pay", returned=Refused(None, "no"), on_refusal="compensate"),
        local("unride", undo, undoes="ride"),
    )  # fmt: skip
    intent = shop.accepted()
    for _ in range(9):
        await shop.work()
        await shop.due()
    await shop.spine.expect(intent, state="failed_retryable", letters=["partial", "unrenderable"])
    broken[0] = False
    await shop.act("redrive", intent)
    await shop.work()
    await shop.spine.expect(intent, state="completed", letters=[], answer=402)
    assert [name for name, _ in await shop.rows()] == ["ride", "pay", "unride"]


async def test_a_step_that_another_definition_has_not_is_left_alone(shop: Any) -> None:
    """A worker of an earlier or later release runs only what it knows, under the names that the plan has."""
    shop.define(local("ride"), local("pay", on_refusal="stop"))
    intent = shop.accepted()
    shop.define(local("ride"), local("settle", on_refusal="stop"))
    await shop.work(times=2)
    assert [name for name, _ in await shop.ends(intent)] == ["ride"]
    assert (await shop.row(intent))["step_name"] == "pay"
    shop.define(local("pay"), local("ride", on_refusal="stop"))
    await shop.work()
    assert [name for name, _ in await shop.ends(intent)] == ["ride", "pay"]
    await shop.spine.expect(intent, state="completed", letters=[])


async def test_a_doubted_step_rests_like_any_other(shop: Any) -> None:
    """Lost commits took what its function had written with them, so nothing of it is unknown."""

    def run(db: Session, params: Any, results: Any) -> None:
        raise ValueError("no cars today")

    shop.define(local("ride", run))
    intent = shop.accepted()
    await shop.spine.execute("UPDATE idem.outbox SET doubted_since = statement_timestamp() - interval '1 hour'")
    for _ in range(8):
        await shop.work()
        await shop.due()
    await shop.spine.expect(intent, state="failed_retryable", status="held", letters=["unrenderable"])
