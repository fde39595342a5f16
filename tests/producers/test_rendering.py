"""A worker renders what was accepted by SQL alone: once, committed before it may be sent, each by itself (34)."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fix_spine import Spine, catalogue
from fix_waiting import running, until
from producers.application import Application, synced, usual

from idem.errors import ParamsInvalid
from idem.outbox.domain.contract import ProviderRequest
from idem.outbox.worker import freezing
from idem.outbox.worker.freezing import BATCH, THREADS, Freezer
from idem.outbox.worker.worker import Worker

Request = Callable[[Any], ProviderRequest]


async def freeze(spine: Spine, **options: Any) -> int:
    return await Freezer(spine.database, spine.catalogue, **options).once()


async def test_it_is_rendered_then_sent_and_its_answer_is_replayed(spine: Spine, application: Application) -> None:
    spine.know(label=lambda params: f"for {params['amount']}")
    intent = application.accepted(params={"amount": 250})
    assert await freeze(spine) == 1
    row = await spine.row(intent)
    assert row and (row["status"], row["attempt"], row["first_sent_at"]) == ("pending", 0, None)
    request = await spine.one("SELECT * FROM idem.requests WHERE intent_id = %(i)s", i=intent)
    assert bytes(request["body"]) == b'{"amount":250,"currency":"eur"}'
    assert request["provider_key"] == row["provider_key"]
    assert str(row["provider_key"]) in request["headers"].values()
    assert (await spine.one("SELECT label FROM idem.intents WHERE id = %(i)s", i=intent))["label"] == "for 250"
    assert spine.effects() == 0
    assert await spine.works() == 1
    assert application.once(params={"amount": 250}).decision == "replay"
    assert await spine.evidence(intent) == [
        ("accept", "accepted", None), ("worker", "rendered", None), ("worker", "report", "succeeded"),
    ]  # fmt: skip


async def test_the_bytes_are_those_of_python_s_accept(spine: Spine, application: Application) -> None:
    by_sql = application.accepted("a", '{"amount": 1.0e2}')
    by_python = spine.accepted("b", 100)
    await freeze(spine)
    query = (
        "SELECT method, path, body, headers - 'idempotency-key' AS headers FROM idem.requests WHERE intent_id = %(i)s"
    )
    assert await spine.one(query, i=by_sql) == await spine.one(query, i=by_python)


async def test_one_pass_of_a_worker_renders_and_sends(spine: Spine, application: Application) -> None:
    application.accepted()
    assert (await spine.work()).claimed == 1 and spine.effects() == 1


async def test_a_running_worker_is_woken_to_render_and_to_send(spine: Spine, application: Application) -> None:
    async with running(polling(spine, 60)):
        await asyncio.sleep(1)  # its first look-ups find nothing, and the next ones are a minute away
        application.accepted(notify=True)
        await until(spine.effects, seconds=20)


def polling(spine: Spine, seconds: float) -> Worker:
    return Worker(spine.database, spine.catalogue, spine.settings.model_copy(update={"poll": seconds}))


async def test_without_a_notification_polling_finds_it(spine: Spine, application: Application) -> None:
    async with running(polling(spine, 0.2)):
        application.accepted()
        await until(spine.effects, seconds=20)


def raises(error: BaseException) -> Request:
    def request(params: Any) -> ProviderRequest:
        if params.get("bad"):
            raise error
        return usual(params)

    return request


def nothing(params: Any) -> Any:
    return None if params.get("bad") else usual(params)


def nul(params: Any) -> ProviderRequest:
    return replace(usual(params), method="PO\0ST" if params.get("bad") else "POST")


def deep(params: Any) -> ProviderRequest:
    return deep(params) if params.get("bad") else usual(params)


def refuse(params: Any) -> None:
    if params.get("bad"):
        raise ParamsInvalid([("/bad", "must not be there")])


BAD: dict[str, dict[str, Any]] = {
    "raises": {"request": raises(KeyError("amount"))},
    "exits": {"request": raises(SystemExit(1))},
    "stops": {"request": raises(StopIteration())},
    "interrupts": {"request": raises(KeyboardInterrupt())},
    "nothing": {"request": nothing},
    "unstorable": {"request": nul},
    "recursion": {"request": deep},
    "path": {"request": lambda p: replace(usual(p), path="no path" if p.get("bad") else "/payments")},
    "params": {"validate": refuse},
    "label": {"label": lambda p: 1 / 0 if p.get("bad") else None},
}  # fmt: skip


@pytest.mark.parametrize("how", BAD)
async def test_what_cannot_be_rendered_rests_and_stops_nobody(spine: Spine, application: Application, how: str) -> None:
    spine.know(**BAD[how])
    bad = application.accepted("bad", {"amount": 1, "bad": True})
    good = [application.accepted(f"good {n}".replace(" ", "-"), {"amount": 1 + n}) for n in range(3)]
    assert await freeze(spine) == 4
    assert [await spine.status(intent) for intent in (bad, *good)] == ["held", *["pending"] * 3]
    key = await spine.key(bad)
    assert (key["state"], key["last_error_code"]) == ("failed_retryable", "unrenderable")
    assert await spine.letters(bad) == ["unrenderable"] and await spine.letters(good[0]) == []
    assert await spine.evidence(bad) == [("accept", "accepted", None), ("worker", "unrenderable", None)]
    events = await spine.all("SELECT aggregateid, type FROM idem.events")
    assert [(e["aggregateid"], e["type"]) for e in events] == [(bad, "rested")]
    assert await spine.all("SELECT FROM idem.requests WHERE intent_id = %(i)s", i=bad) == []
    assert await spine.works() == 3


async def test_card_data_that_passed_accept_is_held(spine: Spine, application: Application) -> None:
    """The setting was changed between accept and now: it is refused after all, and the letter does not quote it."""
    synced(spine.url, replace(spine).know(card_data="allow"))
    intent = application.accepted(params={"amount": 1, "cvc": "987"})
    assert await freeze(spine) == 1
    letter = await spine.one("SELECT reason, details::text FROM idem.dead_letters")
    assert letter["reason"] == "unrenderable" and "/cvc" in letter["details"] and "987" not in letter["details"]
    assert (await spine.key(intent))["state"] == "failed_retryable"


async def test_code_that_hangs_holds_nobody_up(spine: Spine, application: Application) -> None:
    released = threading.Event()

    def request(params: Any) -> ProviderRequest:
        if params.get("bad"):
            released.wait(60)
        return usual(params)

    spine.know(request=request)
    # One that begins later than a tenth of it is not blamed in this pass.
    freezer = Freezer(spine.database, spine.catalogue, time_limit=2.0)
    hanging = [application.accepted(f"bad{n}", {"amount": 1, "bad": True}) for n in range(THREADS)]
    other = application.accepted("other", operation="pay.keyless")
    try:
        await freezer.once()
        assert {await spine.status(intent) for intent in hanging} == {"held"}
        assert await spine.letters(hanging[0]) == ["unrenderable"]
        assert await spine.status(other) == "pending"
        late = application.accepted("late", {"amount": 5})
        other = application.accepted("other2", operation="pay.keyless")
        await freezer.once()
        assert await spine.status(late) == "unfrozen", "no thread is free: it waits, and is not blamed"
        assert await spine.status(other) == "pending"
    finally:
        released.set()
    async with asyncio.timeout(20):
        while await spine.status(late) == "unfrozen":
            await freezer.once()
            await asyncio.sleep(0.05)
    assert await spine.status(late) == "pending"


async def test_the_client_s_retry_after_a_fix_renders_it_again(spine: Spine, application: Application) -> None:
    spine.know(request=raises(KeyError("amount")))
    intent = application.accepted(params={"amount": 7, "bad": True})
    await freeze(spine)
    spine.know(request=usual)
    again = application.once(params={"bad": True, "amount": 7})
    assert (again.decision, again.intent_id, again.status) == ("retrying", intent, "unfrozen")
    assert await spine.letters(intent) == [] and await spine.letters(intent, open=False) == ["unrenderable"]
    assert await spine.works() == 1
    assert application.once(params={"bad": True, "amount": 7}).decision == "replay"


async def test_a_retry_that_still_cannot_be_rendered_rests_again(spine: Spine, application: Application) -> None:
    spine.know(request=raises(KeyError("amount")))
    intent = application.accepted(params={"amount": 7, "bad": True})
    for _ in range(3):
        await freeze(spine)
        assert await spine.letters(intent) == ["unrenderable"]
        assert application.once(params={"amount": 7, "bad": True}).decision == "retrying"


async def test_rows_of_another_worker_are_left_to_it(spine: Spine, application: Application) -> None:
    """Another operation, another account's address, another environment: never rendered by who cannot send it."""
    application.accepted("a")
    for stranger in (
        replace(spine.catalogue, operations={"pay.keyless": spine.catalogue.operations["pay.keyless"]}),
        catalogue("https://elsewhere.test"),
        replace(spine.catalogue, environment="production"),
    ):
        assert await Freezer(spine.database, stranger).once() == 0
    assert await freeze(spine) == 1


async def test_a_row_that_is_too_old_is_held_unrendered(spine: Spine, application: Application) -> None:
    intent = application.accepted()
    await spine.advance(2 * 86400)
    assert await freeze(spine) == 0
    await spine.sweep()
    assert await spine.status(intent) == "held"
    assert await spine.letters(intent) == ["too_late"]
    assert application.once().status == "unfrozen"
    assert await spine.works() == 1


async def test_a_locked_row_is_passed_over(spine: Spine, application: Application) -> None:
    first, second = application.accepted("a"), application.accepted("b", {"amount": 2})
    with psycopg.connect(spine.url) as other:
        other.execute("SELECT FROM idem.outbox WHERE intent_id = %s FOR UPDATE", (first,))
        assert await freeze(spine) == 1
    assert [await spine.status(i) for i in (first, second)] == ["unfrozen", "pending"]


async def test_a_thousand_rows_and_two_workers_each_is_rendered_once(spine: Spine, application: Application) -> None:
    seen: list[Any] = []
    lock = threading.Lock()

    def request(params: Any) -> ProviderRequest:
        with lock:
            seen.append(params["n"])
        return ProviderRequest("POST", "/payments", json={"amount": 1, "n": params["n"]})

    spine.know(request=request)
    await spine.execute(
        "SELECT count(d) FROM generate_series(1, 1000) AS n,"
        " idem.accept('t', 'pay.keyed', 'k' || n, json_build_object('amount', 1, 'n', n)) AS d"
    )
    freezers = [Freezer(spine.database, spine.catalogue) for _ in range(2)]
    done = await asyncio.gather(*(freezer.once() for freezer in freezers))
    assert sum(done) == 1000 and min(done) >= BATCH, done
    assert sorted(seen) == list(range(1, 1001))
    assert application.counts() == (1000, 1000, 1000, 1000)
    [status] = await spine.all("SELECT DISTINCT status FROM idem.outbox")
    assert status["status"] == "pending"
    [kinds] = await spine.all("SELECT count(*) AS n FROM idem.evidence WHERE kind = 'rendered'")
    assert kinds["n"] == 1000


async def test_a_proof_that_came_first_is_left_to_the_reconciler(spine: Spine, application: Application) -> None:
    application.accepted()
    await spine.execute(
        "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome)"
        " SELECT id, intent_id, 'webhook', 'pending' FROM idem.outbox"
    )
    assert await freeze(spine) == 0


def test_the_time_limit_is_below_every_wait_for_a_lock() -> None:
    from idem.outbox.database.pool import Timeouts

    assert freezing.TIME_LIMIT < Timeouts().lock < Timeouts().idle_in_transaction
