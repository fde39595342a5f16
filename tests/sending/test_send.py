"""A function that sends: what it is given, what its word is worth, and how what is unknown is settled."""

import asyncio
import json
import socket
import threading
from typing import Any

import pytest
from fix_spine import Spine
from fix_waiting import until
from sending.box import OPERATION, Box
from sending.conftest import Office

from idem.decisions import InProgress, NeedsOperator, Replay
from idem.errors import LeaseTooShort
from idem.outbox.values import clock
from idem.outbox.worker.worker import Worker
from idem.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded
from idem.sending import Sending, SendRequest


def accepted(office: Spine, key: str = "k1") -> Any:
    return office.accepted(key, operation=OPERATION)


async def worked(office: Office) -> Any:
    intent = accepted(office)
    await office.work()
    return intent


async def status(office: Spine, intent: Any) -> str:
    row = await office.row_if_any(intent)
    return "gone" if row is None else str(row["status"])


async def test_a_mail_is_sent_once_and_its_answer_stays(office: Office, box: Box) -> None:
    given: list[SendRequest] = []

    def send(request: SendRequest, call: Sending) -> Succeeded:
        given.append(request)
        assert 0 < call.deadline <= 1
        return box.post(request, call)

    post = office(send)
    accepted(post)
    await post.work()
    await post.work()
    replay = post.accept(operation=OPERATION)
    assert isinstance(replay, Replay)
    assert (replay.answer.status, json.loads(replay.answer.body)) == (201, {"mail": given[0].key})
    assert (given[0].operation, given[0].account, given[0].json) == (OPERATION, "main", {"amount": 100})
    assert len(box.mails) == len(given) == 1


async def test_an_async_function_does_the_same_on_the_event_loop(office: Office, box: Box) -> None:
    loops: list[Any] = []

    async def send(request: SendRequest, call: Sending) -> Succeeded:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return box.post(request, call)

    async def look(question: Any) -> Any:
        await asyncio.sleep(0)
        return box.look(question)

    post = office(send, lookup=look)
    accepted(post)
    await post.work()
    assert isinstance(post.accept(operation=OPERATION), Replay)
    assert loops == [asyncio.get_running_loop()]
    assert len(box.mails) == 1


def raises(error: BaseException, *, started: bool) -> Any:
    def send(request: SendRequest, call: Sending) -> Any:
        if started:
            call.start()
        raise error

    return send


def returns(value: Any) -> Any:
    def send(request: SendRequest, call: Sending) -> Any:
        call.start()
        return value

    return send


class Reset(Exception):
    """An exception of somebody's library."""


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        Reset("mail for alice@example.com with password hunter2"), ConnectionRefusedError(), TimeoutError(),
        LeaseTooShort("of its own making"), SystemExit(1), KeyboardInterrupt(), StopIteration(),
        asyncio.CancelledError(), GeneratorExit(),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
async def test_whatever_it_raises_proves_nothing(office: Office, error: BaseException, started: bool) -> None:
    post = office(raises(error, started=started))
    intent = await worked(post)
    assert await status(post, intent) == "unknown"
    said = json.dumps(await post.all("SELECT * FROM idem.evidence"), default=str)
    assert "hunter2" not in said and "alice" not in said


@pytest.mark.parametrize("error", [Reset(), SystemExit(1), asyncio.CancelledError()], ids=lambda e: type(e).__name__)
async def test_what_an_async_function_raises_proves_nothing_either(office: Office, error: BaseException) -> None:
    async def send(request: SendRequest, call: Sending) -> Any:
        raise error

    post = office(send)
    intent = await worked(post)
    assert await status(post, intent) == "unknown"


@pytest.mark.parametrize(
    "value", [None, True, "sent", Ambiguous(), NotExecuted("given_back"), NotExecuted("caller"), Succeeded],
    ids=str,
)  # fmt: skip
async def test_what_is_no_word_of_a_send_proves_nothing(office: Office, value: Any) -> None:
    post = office(returns(value))
    intent = await worked(post)
    assert await status(post, intent) == "unknown"


@pytest.mark.parametrize(
    ("value", "became"),
    [
        pytest.param(Succeeded("m1", fields={"at": object()}), "gone", id="fields that no JSON can hold"),
        (Succeeded(17), "gone"),  # type: ignore[arg-type]
        (Refused("m1", "no such mailbox"), "gone"),
        (Pending("m1"), "awaiting"),
        (NotExecuted("transport"), "pending"),
        (NotExecuted("throttled", 60), "pending"),
        (NotExecuted("config"), "pending"),
        (NotExecuted("request"), "held"),
    ],
    ids=str,
)
async def test_its_own_word_counts(office: Office, value: Any, became: str) -> None:
    post = office(returns(value))
    intent = await worked(post)
    assert await status(post, intent) == became


async def test_a_lease_that_got_too_short_is_given_back_and_the_call_made_later(office: Office, box: Box) -> None:
    frozen = [True]

    def send(request: SendRequest, call: Sending) -> Succeeded:
        if frozen:
            # As if the process had been stopped while it prepared the mail.
            call._lease_ends = clock.boottime() + 1
            frozen.clear()
        return box.post(request, call)

    post = office(send)
    intent = await worked(post)
    row = await post.row(intent)
    assert (row["status"], row["first_sent_at"], row["failures"], box.mails) == ("pending", None, 0, [])
    await post.work(after=10)
    assert await status(post, intent) == "gone"
    assert len(box.mails) == 1


async def test_one_call_starts_once(office: Office, box: Box) -> None:
    def send(request: SendRequest, call: Sending) -> Succeeded:
        box.post(request, call)
        return box.post(request, call)

    post = office(send)
    intent = await worked(post)
    assert await status(post, intent) == "unknown"
    assert len(box.mails) == 1


async def test_a_lookup_by_key_settles_what_was_sent_and_what_was_not(office: Office, box: Box) -> None:
    attempts: list[bool] = []

    def send(request: SendRequest, call: Sending) -> Any:
        call.start()
        attempts.append(True)
        if len(attempts) == 2:
            box.put(request)
        raise ConnectionResetError

    post = office(send, lookup={"by_key": box.look, "horizon": "10s", "agree": 2})
    intent = await worked(post)
    assert (await status(post, intent), box.mails) == ("unknown", [])
    await post.reconcile(after=200, hasten=True, times=2)
    assert (await post.key(intent))["state"] == "failed_retryable"
    await post.reconcile(after=20)
    await post.work()
    assert (await status(post, intent), len(box.mails)) == ("unknown", 1)
    done = await post.reconcile(hasten=True)
    assert dict(done.settled) == {"lookup:succeeded": 1}
    assert isinstance(post.accept(operation=OPERATION), Replay)
    assert len(box.mails) == 1


@pytest.mark.parametrize("answer", [None, "yes", RuntimeError(), SystemExit()], ids=str)
async def test_a_lookup_that_says_nothing_settles_nothing(office: Office, answer: Any) -> None:
    def look(question: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    post = office(raises(Reset(), started=True), lookup=look)
    intent = await worked(post)
    await post.reconcile(after=4000, hasten=True, times=4)
    assert await status(post, intent) == "unknown"
    await post.expect(intent, lookups=0)


async def test_the_standing_order_decides_for_a_mail_and_is_on_record(office: Office) -> None:
    post = office(raises(Reset(), started=True), on_unsettleable="assume_done", value_at_risk="none")
    intent = await worked(post)
    await post.reconcile(hasten=True)
    assert await status(post, intent) == "unknown"  # as long as the mail may still be on its way
    await post.reconcile(after=200, hasten=True)
    assert isinstance(post.accept(operation=OPERATION), Replay)
    assert "policy" in {source for source, _, _ in await post.evidence(intent)}


async def test_without_a_standing_order_a_person_decides(office: Office) -> None:
    post = office(raises(Reset(), started=True))
    intent = await worked(post)
    await post.reconcile(hasten=True)
    assert await post.letters(intent) == ["not_settleable"]
    assert isinstance(post.accept(operation=OPERATION), NeedsOperator)


async def test_a_replay_hands_over_the_same_key_and_bytes(office: Office, box: Box) -> None:
    given: list[tuple[str, bytes]] = []

    def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        given.append((request.key, request.body))
        if len(given) == 1:
            raise ConnectionResetError
        return Succeeded(request.key)

    post = office(send, key={"replay": "stored", "retention": "24h"})
    intent = await worked(post)
    assert await status(post, intent) == "unknown"
    await post.reconcile(hasten=True)
    assert isinstance(post.accept(operation=OPERATION), Replay)
    assert len(given) == 2 and given[0] == given[1]


async def test_a_hung_name_in_one_lane_holds_up_no_other(
    office: Office, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        release.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    def send(request: SendRequest, call: Sending) -> Succeeded:
        if request.account == "eu":
            socket.getaddrinfo("mail.example", 25)
        return box.post(request, call)

    post = office(send, accounts=["eu", "us"], lease=30, deadline="20s")
    worker = Worker(post.database, post.catalogue, post.settings)
    stop = asyncio.Event()
    try:
        for number in range(4):
            post.accepted(f"eu{number}", operation="mails.eu")
        running = asyncio.create_task(worker.run(stop))
        await asyncio.sleep(0.3)
        for number in range(10):
            post.accepted(f"us{number}", operation="mails.us")
        await until(lambda: len(box.mails) == 10)
        eu = next(each for each in worker.lanes if each.name.account == "eu")
        assert eu.lane.free == 0
        assert isinstance(post.accept("eu0", operation="mails.eu"), InProgress)
    finally:
        release.set()
        stop.set()
        await running
