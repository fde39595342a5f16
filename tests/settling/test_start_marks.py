"""The starts of calls to a provider without keys are marked together, and no call waits for another one's row."""

import asyncio
from typing import Any

import psycopg
import pytest
from fix_spine import Spine
from fix_steps import claim

from idem.outbox.worker import start_marks
from idem.outbox.worker.start_marks import StartMarks


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many marks each statement was about."""
    seen: list[int] = []
    real = start_marks.mark_starts

    async def counted(connection: Any, rows: Any) -> Any:
        seen.append(len(rows))
        return await real(connection, rows)

    monkeypatch.setattr(start_marks, "mark_starts", counted)
    return seen


async def many(spine: Spine, number: int) -> Any:
    for each in range(number):
        spine.accepted(f"k{each}", operation="pay.keyless")
    return await claim(spine, "keyless", limit=number)


async def marked(spine: Spine) -> int:
    return int(await spine.value("SELECT count(*) FROM idem.outbox WHERE started_at IS NOT NULL"))


async def test_what_begins_together_is_marked_in_few_statements(spine: Spine, sizes: list[int]) -> None:
    rows, marks = await many(spine, 40), StartMarks(spine.database)
    assert all(await asyncio.gather(*(marks.mark(each.row, needed=1.0) for each in rows)))
    assert await marked(spine) == 40
    assert sum(sizes) == 40 and len(sizes) <= 2


async def test_a_claim_that_is_over_gets_no_mark_and_the_others_do(spine: Spine) -> None:
    rows, marks = await many(spine, 4), StartMarks(spine.database)
    await spine.forced("UPDATE idem.outbox SET attempt = 9 WHERE id = %(i)s", i=rows[0].row.id)
    await spine.forced(
        "UPDATE idem.outbox SET claimed_until = now() + interval '1 s' WHERE id = %(i)s", i=rows[1].row.id
    )
    made = await asyncio.gather(*(marks.mark(each.row, needed=5.0) for each in rows))
    assert made == [False, False, True, True]
    assert await marked(spine) == 2


async def test_a_row_that_another_session_holds_keeps_only_its_own_call_waiting(spine: Spine) -> None:
    rows, marks = await many(spine, 3), StartMarks(spine.database)
    async with await psycopg.AsyncConnection.connect(spine.url) as other:
        await other.execute("SELECT FROM idem.outbox WHERE id = %s FOR UPDATE", [rows[0].row.id])
        waiting = [asyncio.create_task(marks.mark(each.row, needed=1.0)) for each in rows]
        assert await asyncio.gather(*waiting[1:]) == [True, True]
        assert not waiting[0].done()
        await other.rollback()
    assert await waiting[0] is True


async def test_a_mark_that_cannot_be_written_is_no_mark_and_the_next_ones_are_tried(
    spine: Spine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, marks = await many(spine, 2), StartMarks(spine.database)

    async def lost(connection: Any, rows: Any) -> Any:
        raise ConnectionResetError

    with monkeypatch.context() as away:
        away.setattr(start_marks, "mark_starts", lost)
        with pytest.raises(ConnectionResetError):
            await marks.mark(rows[0].row, needed=1.0)
    assert await marks.mark(rows[1].row, needed=1.0) is True
