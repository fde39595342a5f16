"""A call that begins with its claim is marked as started by the claim: no statement more, and none begins unmarked."""

import asyncio
from typing import Any

import pytest
from fix_steps import claim
from fix_waiting import until
from sending.box import OPERATION, Box, status
from sending.conftest import Office

from idem.decisions import Replay
from idem.outbox.domain.outcomes import NotExecuted, Seen
from idem.outbox.settle import results
from idem.outbox.settle.report import Report
from idem.outbox.worker import lane_worker, start_marks
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

MARKED = "SELECT count(*)::integer FROM idem.outbox WHERE started_at IS NOT NULL"


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many marks each statement was about that only marks."""
    real, seen = start_marks.mark_starts, list[int]()

    async def counted(connection: Any, rows: Any) -> Any:
        seen.append(len(rows))
        return await real(connection, rows)

    monkeypatch.setattr(start_marks, "mark_starts", counted)
    return seen


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("rate", "marks"), [(None, 0), (100, 2)])
async def test_no_call_begins_before_its_mark(
    office: Office, box: Box, sizes: list[int], rate: float | None, marks: int, exact: bool
) -> None:
    """One that may wait for the rate of its lane is marked when it begins."""
    begun: list[int] = []

    async def send(request: SendRequest, call: Sending) -> Succeeded:
        begun.append(await post.value(MARKED))
        call.start()
        return box.put(request)

    limits = {"rate": rate} if rate else {}
    post = office(send, limits=limits | ({"concurrency": 2, "exact": True} if exact else {}))
    for number in range(2):
        post.accepted(f"k{number}", operation=OPERATION)
    await post.work(times=2)
    assert (sum(sizes), len(begun), min(begun) > 0, len(box.mails)) == (marks, 2, True, 2)


async def test_a_call_that_is_given_back_before_it_begins_has_no_mark(
    office: Office, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends between the claim and the start."""
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def slow(self: Any, flight: Any) -> None:
        claimed.set()
        await go_on.wait()

    monkeypatch.setattr(lane_worker.LaneWorker, "_call", slow)
    post = office(box.post)
    intent = post.accepted(operation=OPERATION)
    worker, stop = Worker(post.database, post.catalogue, post.settings), asyncio.Event()
    working = asyncio.create_task(worker.run(stop))
    await asyncio.wait_for(claimed.wait(), 10)
    assert await post.value(MARKED) == 1
    stop.set()
    await until(lambda: worker.settler.fates["settled"] == 1)
    await working
    row = await post.row_if_any(intent)
    assert row is not None and (row["status"], row["started_at"], box.mails) == ("pending", None, [])


async def test_what_dies_after_its_claim_is_unknown(office: Office, box: Box) -> None:
    """It may have begun: nobody is left who knows that it has not."""
    post = office(box.post)
    intent = post.accepted(operation=OPERATION)
    await claim(post, "mail", account="main", starts=True)
    await post.sweep(after=31)
    assert await status(post, intent) == "unknown"


async def test_what_others_may_have_sent_is_looked_at_before_it_is_marked(office: Office, box: Box) -> None:
    post = office(box.post)
    intent = post.accepted(operation=OPERATION)
    await post.forced("UPDATE idem.outbox SET denied_sent_at = now(), sent_as = 1 WHERE intent_id = %(i)s", i=intent)
    [claimed] = await claim(post, "mail", account="main", starts=True, sent_as=2)
    assert (claimed.kept, claimed.row.started) == (True, False)


@pytest.mark.parametrize("decided", ["by a standing order", "by an operator"])
async def test_what_was_taken_as_done_and_was_never_made_is_a_conflict(office: Office, box: Box, decided: str) -> None:
    """The worker wakes up after its lease, and says so: the stored answer stays, and a person hears of it."""
    order: dict[str, Any] = {"on_unsettleable": "assume_done", "value_at_risk": "none"} if "order" in decided else {}
    post = office(box.post, **order)
    intent = post.accepted(operation=OPERATION)
    [claimed] = await claim(post, "mail", account="main", starts=True)
    await post.sweep(after=31)
    if order:
        await post.reconcile(after=400, hasten=True)
    else:
        await post.act("resolve_completed", intent)
    assert (await status(post, intent), await post.letters(intent), box.mails) == ("gone", [], [])
    late = Report(
        claimed.row, NotExecuted("given_back"), Seen(note="its lease is over"), post.catalogue.require(OPERATION)
    )
    for _ in range(2):  # a report whose answer was lost is made again
        await post.run(results.settle_alone, late)
    assert await post.letters(intent) == ["conflict"]
    assert isinstance(post.accept(operation=OPERATION), Replay)
