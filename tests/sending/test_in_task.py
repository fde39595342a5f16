"""An asynchronous send runs in the task of its call: what it does to that task, and what is done to it, ends there."""

import asyncio
from typing import Any

import pytest
from fix_waiting import until
from sending.box import OPERATION, Box, overrunning, status
from sending.conftest import Office

from idem.decisions import Replay
from idem.outbox.calls.in_task import InTask
from idem.outbox.values import clock
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest


async def stubborn(release: asyncio.Event) -> None:
    """Waits, whoever cancels it."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


async def test_one_that_does_not_end_at_its_deadline_has_overrun_and_its_end_counts(office: Office, box: Box) -> None:
    release = asyncio.Event()

    async def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        await stubborn(release)
        return box.put(request)

    post = office(send)
    intent = post.accepted(operation=OPERATION)
    working = asyncio.create_task(post.work())
    await until(overrunning)
    assert await status(post, intent) == "claimed"
    release.set()
    await working
    assert (await status(post, intent), overrunning()) == ("gone", 0)


async def test_a_pass_leaves_one_that_cannot_be_cancelled_when_its_lease_is_over(office: Office, box: Box) -> None:
    release = asyncio.Event()

    async def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        await stubborn(release)
        return box.put(request)

    post = office(send, lease=2.5)
    intent = post.accepted(operation=OPERATION)
    try:
        await asyncio.wait_for(post.work(), 20)
        assert await status(post, intent) == "claimed"
    finally:
        release.set()
    await until(lambda: len(box.mails) == 1)


async def test_a_cancellation_that_it_asks_for_does_not_reach_its_report(office: Office, box: Box) -> None:
    async def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return box.put(request)

    post = office(send)
    intent = await post.sent(operation=OPERATION)
    assert await status(post, intent) == "gone"
    assert isinstance(post.accept(operation=OPERATION), Replay)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), RuntimeError("no")])
async def test_whatever_it_raises_proves_nothing_and_ends_nothing(
    office: Office, box: Box, error: BaseException
) -> None:
    async def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        raise error

    post = office(send)
    intent = await post.sent(operation=OPERATION)
    assert await status(post, intent) == "unknown"


async def test_each_deadline_is_kept_by_the_one_timer() -> None:
    calls, ended = InTask("mail"), list[str]()

    async def call(name: str, seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await calls.run(asyncio.sleep, 60, ends=clock.boottime() + seconds, account="main")
        ended.append(name)
        task: Any = asyncio.current_task()
        assert not task.cancelling()

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 0.3), ("first", 0.1), ("second", 0.2)):
            group.create_task(call(name, seconds))
    assert ended == ["first", "second", "late"]
