"""The starts of the calls of one claim are marked together, before any of them begins."""

import asyncio
from typing import Any

import pytest
from fix_waiting import until
from sending.box import OPERATION, Box
from sending.conftest import Office

from idem.outbox.worker import start_marks
from idem.outbox.worker.worker import Worker
from idem.outcomes import Succeeded
from idem.sending import Sending, SendRequest

MARKED = "SELECT count(*)::integer FROM idem.outbox WHERE started_at IS NOT NULL"


async def test_the_calls_of_one_claim_are_marked_in_one_statement(
    office: Office, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each function begins when its mark is committed."""
    real, sizes, begun = start_marks.mark_starts, list[int](), list[int]()

    async def counted(connection: Any, rows: Any) -> Any:
        sizes.append(len(rows))
        return await real(connection, rows)

    monkeypatch.setattr(start_marks, "mark_starts", counted)

    async def send(request: SendRequest, call: Sending) -> Succeeded:
        begun.append(await post.value(MARKED))
        call.start()
        return box.put(request)

    post = office(send)
    for number in range(2):
        post.accepted(f"k{number}", operation=OPERATION)
    await post.work()
    assert (sizes, begun, len(box.mails)) == ([2], [2, 2], 2)


async def test_a_call_that_is_given_back_while_it_is_marked_never_begins(
    office: Office, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked, go_on = start_marks.mark_starts, asyncio.Event(), asyncio.Event()

    async def slow(connection: Any, rows: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await real(connection, rows)

    monkeypatch.setattr(start_marks, "mark_starts", slow)
    post = office(box.post)
    intent = post.accepted(operation=OPERATION)
    worker, stop = Worker(post.database, post.catalogue, post.settings), asyncio.Event()
    working = asyncio.create_task(worker.run(stop))
    await asyncio.wait_for(asked.wait(), 10)
    stop.set()
    await until(lambda: worker.settler.fates["settled"] == 1)
    go_on.set()
    await working
    assert box.mails == []
    row = await post.row_if_any(intent)
    assert row is not None and (row["status"], row["started_at"]) == ("pending", None)
