"""A function that nobody can end: nothing is reported before it has ended, and its slot stays taken (hazard 55)."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fix_forking import started
from fix_waiting import running, until
from sending import postman
from sending.box import OPERATION, Box, overrunning, status
from sending.conftest import Office

from idem.decisions import Replay, Unknown
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded
from idem.reconciler.daemon import Reconciler
from idem.sending import Sending, SendRequest


class Hanging:
    """Sends, and ends when it is let go."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.release = threading.Event()
        self.calls = 0

    def __call__(self, request: SendRequest, call: Sending) -> Succeeded:
        self.calls += 1
        call.start()
        self.release.wait(60)
        return self._box.put(request)


async def test_its_claim_is_left_to_the_sweeper_and_its_late_result_is_a_proof(office: Office, box: Box) -> None:
    send = Hanging(box)
    post = office(send, lease=3, lookup={"by_key": box.look, "agree": 1})
    try:
        worker = Worker(post.database, post.catalogue, post.settings)
        async with running(worker):
            intent = post.accepted(operation=OPERATION)
            await until(overrunning)
            lane = worker.lanes[0].lane
            assert (lane.free, await status(post, intent)) == (1, "claimed")
            await asyncio.sleep(2.5)
            await post.sweep()
            assert await status(post, intent) == "unknown"
            # It says that nothing is there, and is not believed: the thread may still send.
            await post.reconcile(hasten=True)
            assert isinstance(post.accept(operation=OPERATION), Unknown)
            assert (lane.free, send.calls, box.mails) == (1, 1, [])
            send.release.set()
            await until(lambda: post.lacks("FROM idem.outbox WHERE intent_id = %(i)s", i=intent))
            assert (lane.free, overrunning()) == (2, 0)
    finally:
        send.release.set()
    assert isinstance(post.accept(operation=OPERATION), Replay)
    assert ("worker", "late_result", "succeeded") in await post.evidence(intent)
    assert (len(box.mails), send.calls) == (1, 1)


async def test_slots_that_hang_claim_nothing_more(office: Office, box: Box) -> None:
    send = Hanging(box)
    post = office(send, lease=30)
    try:
        worker = Worker(post.database, post.catalogue, post.settings)
        async with running(worker):
            for number in range(5):
                post.accepted(f"k{number}", operation=OPERATION)
            await until(lambda: overrunning() == 2)
            assert (worker.lanes[0].lane.free, send.calls) == (0, 2)
            send.release.set()
            await until(lambda: len(box.mails) == 5)
    finally:
        send.release.set()
    assert overrunning() == 0


async def test_an_asynchronous_one_is_ended_at_its_deadline(office: Office, box: Box) -> None:
    async def send(request: SendRequest, call: Sending) -> Succeeded:
        call.start()
        await asyncio.sleep(60)
        return box.put(request)

    post = office(send)
    intent = await post.sent(operation=OPERATION)
    assert (await status(post, intent), box.mails, overrunning()) == ("unknown", [], 0)


async def test_one_pass_ends_with_the_lease_and_reports_nothing(office: Office, box: Box) -> None:
    send = Hanging(box)
    post = office(send, lease=2.5)
    intent = post.accepted(operation=OPERATION)
    try:
        await asyncio.wait_for(post.work(), 20)
        assert await status(post, intent) == "claimed"
    finally:
        send.release.set()
    await until(lambda: len(box.mails) == 1)


async def test_a_lookup_that_hangs_was_not_asked_and_keeps_its_slot(office: Office, box: Box) -> None:
    release = threading.Event()

    def look(question: Any) -> Any:
        release.wait(60)

    def send(request: SendRequest, call: Sending) -> Succeeded:
        raise ConnectionResetError

    post = office(send, lookup=look)
    intents = [post.accepted(f"k{number}", operation=OPERATION) for number in range(6)]
    while any([await status(post, intent) != "unknown" for intent in intents]):
        await post.work()
    reconciler = Reconciler(post.database, post.catalogue, slots=2, margin=0.5)
    try:
        done = await asyncio.wait_for(reconciler.run_once(hasten=True), 30)
        assert dict(done.settled) == {}
        assert (reconciler.lanes[0].lane.free, overrunning()) == (0, 2)
    finally:
        release.set()
    await until(lambda: reconciler.lanes[0].lane.free == 2 and overrunning() == 0)
    await reconciler.close()


@pytest.fixture
def process(db_url: str, tmp_path: Path) -> Any:
    child = started(postman.run, db_url, str(tmp_path))
    yield child
    if child.is_alive():
        child.kill()
    child.join()


async def test_a_worker_that_is_killed_in_the_middle_leaves_an_unknown(office: Office, box: Box, process: Any) -> None:
    post = office(box.post, lease=postman.LEASE)
    intent = post.accepted(operation=OPERATION)
    await until(lambda: box.mails)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    await post.sweep(after=10)
    assert await status(post, intent) == "unknown"
    await post.work()
    assert len(box.mails) == 1


async def test_a_worker_that_is_stopped_waits_for_the_lease_and_then_says_nothing(
    office: Office, box: Box, process: Any
) -> None:
    post = office(box.post, lease=postman.LEASE)
    intent = post.accepted(operation=OPERATION)
    await until(lambda: box.mails)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    await asyncio.to_thread(process.join, 90)
    assert (process.exitcode, time.monotonic() - began < 25) == (0, True)
    assert await status(post, intent) == "claimed"
    assert await post.column("SELECT ended_at FROM idem.daemons WHERE kind = 'worker' AND tokens <> '{}'") == [None]
    await post.sweep(after=10)
    assert await status(post, intent) == "unknown"
