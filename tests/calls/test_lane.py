"""A lane: what a call comes to, its slots, its questions, and its neighbours."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from calls.conftest import OK, POST, answers, does, drinks
from fix_waiting import until

from idem.errors import ConfigError
from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Account, Contract, FrozenRequest
from idem.outbox.values import clock
from idem.outcomes import Absent, Ambiguous, CouldNotAsk, NotExecuted, Succeeded
from idem.sending import Question

QUESTION = Question("key-1", None, False)


def saying(status: int, body: bytes = b"{}") -> Any:
    return does(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


def lease() -> float:
    return clock.boottime() + 60


def opened(bank: Any, *, slots: int = 2) -> Lane:
    """It is left open: a lane to a literal address has no thread and keeps no connection."""
    return Lane(bank, bank.account, slots=slots, margin=0.5)


async def sent(lane: Lane, row: object = "row") -> Any:
    """What a call comes to, and what was seen."""
    return await lane.send(row, POST, lease_ends=lease(), start=lambda: True)


closes = does()


@pytest.mark.parametrize(
    ("handler", "outcome", "status"),
    [
        (saying(201, b'{"id": "p-1"}'), Succeeded("p-1"), 201),
        (saying(401), NotExecuted("config"), 401),
        (saying(500), Ambiguous(), 500),
        (saying(201, b"no json"), Ambiguous(), 201),
        (closes, Ambiguous(), None),
    ],
    ids=["succeeded", "config", "5xx", "the contract raises", "lost"],
)
async def test_what_a_call_comes_to(serve: Any, bank: Any, handler: Any, outcome: Any, status: int | None) -> None:
    server = await serve(handler)
    lane = opened(bank(server.origin))
    got, seen = await sent(lane)
    assert got == outcome
    assert (seen.http_status, seen.started) == (status, True)
    assert seen.elapsed is not None


async def test_not_sent_is_not_executed_and_a_give_back_is_no_failure(bank: Any) -> None:
    lane = opened(bank("http://127.0.0.1:9"))
    for _ in range(20):
        got, seen = await lane.send("row", POST, lease_ends=clock.boottime(), start=lambda: True)
        assert got == NotExecuted("given_back")
        assert seen.started is False
    assert lane.room() == 2
    for number in range(5):
        got, _ = await sent(lane, number)
        assert got == NotExecuted("transport")
    assert lane.room() == 0
    got, seen = await sent(lane)
    assert seen.note == "given back: the breaker is open"
    assert isinstance(got, NotExecuted) and got.why == "given_back"
    assert (got.retry_after or 0) > 0, "with a wait, so that the row is not claimed again at once"
    look, _ = await lane.ask(QUESTION, lease_ends=lease())
    assert isinstance(look, CouldNotAsk) and look.retry_after is not None


async def test_a_request_that_cannot_be_sent_is_a_matter_of_configuration(bank: Any) -> None:
    lane = opened(bank("http://127.0.0.1:9"))
    bad = FrozenRequest("POST", "/", {"X-A": "é"}, b"")
    got, seen = await lane.send("row", bad, lease_ends=lease(), start=lambda: True)
    assert got == NotExecuted("config")
    assert "'X-A'" in (seen.note or "")


def test_a_lane_with_unusable_credentials_does_not_open(bank: Any) -> None:
    """IB-081: at start-up, not at the first payment."""
    with pytest.raises(ConfigError):
        Lane(bank("http://127.0.0.1:9"), Account("main", "http://api.test", {"X": "…"}), slots=1, margin=1)


async def test_no_more_calls_than_slots(serve: Any, bank: Any) -> None:
    running = most = 0

    async def slow(wire: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await wire.request()
        await asyncio.sleep(0.1)
        running -= 1
        await wire.say(OK)

    server = await serve(slow)
    lane = opened(bank(server.origin), slots=3)
    calls = [sent(lane, n) for n in range(9)]
    together = asyncio.gather(*calls)
    await asyncio.sleep(0.05)
    assert (lane.free, lane.room()) == (0, 0)
    assert all(outcome == Succeeded("p-1") for outcome, _ in await together)
    assert most == 3
    assert lane.free == 3


async def test_a_row_that_waits_too_long_for_a_slot_is_given_back(drinking: Any, bank: Any) -> None:
    """Hazard 1: time lost before the call starts counts."""
    lane = opened(bank(drinking.origin), slots=1)
    first = asyncio.create_task(sent(lane, "a"))
    await until(lambda: drinking.stray)
    ends = clock.boottime() + 2.8
    got, seen = await lane.send("b", POST, lease_ends=ends, start=lambda: True)
    assert (got, seen.note) == (NotExecuted("given_back"), "given back: no slot was free")
    assert (await first)[0] == Ambiguous()


async def test_a_slot_whose_call_broke_off_works_again(serve: Any, bank: Any) -> None:
    broken = True

    async def handler(wire: Any) -> None:
        await wire.request()
        if not broken:
            await wire.say(OK)

    server = await serve(handler)
    lane = opened(bank(server.origin), slots=1)
    for _ in range(3):
        assert (await sent(lane, "a"))[0] == Ambiguous()
    broken = False
    for _ in range(3):
        assert (await sent(lane, "a"))[0] == Succeeded("p-1")


async def test_a_cancelled_slot_loses_no_row_and_does_not_blame_the_provider(drinking: Any, bank: Any) -> None:
    lane = opened(bank(drinking.origin), slots=20)
    tasks = [asyncio.create_task(sent(lane, n)) for n in range(15)]
    await until(lambda: drinking.connections == 15)
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    assert {(await task)[0] for task in tasks} == {Ambiguous()}
    assert lane.room() == 20


async def test_a_provider_that_hangs_does_not_slow_another_lane(serve: Any, bank: Any) -> None:
    """IB-042."""
    hanging, healthy = await serve(drinks), await serve(answers)
    patient = replace(bank("").contract, connect_timeout=2.0)
    slow, quick = opened(bank(hanging.origin), slots=20), opened(bank(healthy.origin, contract=patient), slots=2)
    stuck = [asyncio.create_task(sent(slow, n)) for n in range(40)]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    for n in range(20):
        assert (await sent(quick, n))[0] == Succeeded("p-1")
    assert time.monotonic() - began < 1.5
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck)


async def test_questions_are_asked_in_order_until_one_is_answered(serve: Any, bank: Any) -> None:
    async def handler(wire: Any) -> None:
        head = await wire.request()
        status = {b"/first": 429, b"/second": 404, b"/third": 201}[head.split()[1]]
        await wire.say(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)

    server = await serve(handler)
    lane = opened(bank(server.origin, paths=("/first", "/second", "/third")))
    look, seen = await lane.ask(QUESTION, lease_ends=lease())
    assert look == Absent()
    assert seen.http_status == 404
    assert [request.split()[1] for request in server.full] == [b"/first", b"/second"]


@pytest.mark.parametrize("handler", [saying(500), saying(401), closes], ids=["5xx", "401", "closed"])
async def test_a_question_without_an_answer_is_could_not_ask(serve: Any, bank: Any, handler: Any) -> None:
    server = await serve(handler)
    lane = opened(bank(server.origin))
    look, _ = await lane.ask(QUESTION, lease_ends=lease())
    assert look == CouldNotAsk()


async def test_a_row_that_cannot_be_asked_about(bank: Any) -> None:
    lane = opened(bank("http://127.0.0.1:9", paths=()))
    look, seen = await lane.ask(QUESTION, lease_ends=lease())
    assert (look, seen.note) == (CouldNotAsk(), "no look-up is possible for this row")


async def test_a_question_about_a_dead_provider_closes_no_breaker_and_one_that_is_answered_does(
    serve: Any, bank: Any
) -> None:
    server = await serve(saying(404))
    living = bank(server.origin)
    lane = opened(bank("http://127.0.0.1:9"))
    for _ in range(5):
        assert (await lane.ask(QUESTION, lease_ends=lease()))[0] == CouldNotAsk()
    assert lane.room() == 0
    lane.account = living.account
    await until(lambda: lane.room() > 0)
    assert (await lane.ask(Question("key-2", None, False), lease_ends=lease()))[0] == Absent()
    assert lane.breaker.closings == 1
    assert lane.room() == 1
    await lane.ask(Question("key-3", None, False), lease_ends=lease())
    assert lane.room() == 2


async def test_no_credential_and_no_body_in_what_was_seen(serve: Any, bank: Any) -> None:
    """IB-175: the provider echoes our key; an error could quote our header."""

    async def echoes(wire: Any) -> None:
        await wire.request()
        if len(wire.server.full) == 1:
            await wire.say(b"HTTP/1.1 500 Bearer sk_secret\r\nContent-Length: 16\r\n\r\nBearer sk_secret")
        elif len(wire.server.full) == 2:
            await wire.say(b"Bearer sk_secret\r\n\r\n")

    server = await serve(echoes)
    lane = opened(bank(server.origin))
    for _ in range(3):
        ended = await sent(lane)
        assert "sk_secret" not in repr(ended)
    assert "sk_secret" not in repr(lane.account)


async def test_a_closed_lane_gives_back_and_finishes_what_runs(serve: Any, bank: Any) -> None:
    async def slow(wire: Any) -> None:
        await wire.request()
        await asyncio.sleep(0.2)
        await wire.say(OK)

    server = await serve(slow)
    lane = opened(bank(server.origin, contract=Contract("bank", deadline=5.0)))
    running = asyncio.create_task(sent(lane, "a"))
    await until(lambda: server.full)
    await lane.close()
    assert lane.room() == 0
    got, _ = await sent(lane, "b")
    assert got == NotExecuted("given_back")
    assert (await running)[0] == Succeeded("p-1")
