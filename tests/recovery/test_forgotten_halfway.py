"""A database that changed, attacked: claims that were forgotten halfway, an order of answers, a word of an operator."""

import asyncio
from typing import Any

from fix_restore import notices
from fix_spine import Spine
from fix_steps import claim_one

from idem.outbox.database import identity
from idem.outbox.recovery import guard, release


async def test_a_start_mark_that_may_be_lost_proves_nothing(spine: Spine) -> None:
    """The claim survived, the commit of its start mark did not: the call may have been made."""
    intent = spine.accepted(operation="pay.keyless")
    await claim_one(spine, "keyless")
    await notices(spine, system_identifier=1)
    await spine.advance(1000)
    await spine.sweep()
    assert (await spine.row(intent))["status"] == "unknown"
    assert (await spine.work()).claimed == 0
    assert spine.effects() == 0


async def test_a_row_that_was_at_rest_rests_again(spine: Spine) -> None:
    """Its client was told that nothing happened, and may have paid otherwise: "nothing was lost" orders no call."""
    intent = await spine.sent(amount=-1, operation="pay.keyless")
    sends = len(spine.bank.log.sends())
    events = await spine.all("SELECT type FROM idem.events")
    assert await spine.status(intent) == "held"
    await notices(spine, system_identifier=1)
    assert await spine.status(intent) == "unknown"
    assert await spine.run(release.release, spine.catalogue, by="ann", reason="synchronous standby") == 1
    assert await spine.status(intent) == "held"
    assert (await spine.key(intent))["state"] == "failed_retryable"
    assert await spine.letters(intent), "somebody must still decide"
    await spine.work()
    assert len(spine.bank.log.sends()) == sends
    assert await spine.all("SELECT type FROM idem.events") == events


async def test_a_queued_row_goes_back_to_work_without_a_word_of_rest(spine: Spine) -> None:
    """Nobody is told "nothing happened" about a row that is sent in the next moment."""
    spine.accepted(operation="pay.keyless")
    await notices(spine, system_identifier=1)
    assert await spine.run(release.release, spine.catalogue, by="ann", reason="synchronous standby") == 1
    assert await spine.all("SELECT type FROM idem.events") == []
    assert await spine.works() == 1


async def test_answers_that_overtake_each_other_are_no_restore(spine: Spine, monkeypatch: Any) -> None:
    """Two new connections ask where the log is; the answer to the first is slow, and the second waits for its turn."""
    spine.accepted(operation="pay.keyless")
    own = guard.Guard(spine.catalogue, "single")
    read = identity.read
    late, began = asyncio.Event(), asyncio.Event()
    asked: list[int] = []

    async def slow_at_first(connection: Any) -> identity.Identity:
        found = await read(connection)
        asked.append(found.moved)
        began.set()
        if len(asked) == 1:
            await late.wait()
        return found

    monkeypatch.setattr(identity, "read", slow_at_first)
    async with spine.database.connection() as one, spine.database.connection() as two:
        first = asyncio.create_task(own(one))
        await began.wait()
        await two.execute("SELECT pg_logical_emit_message(false, 'idem', repeat('x', 100000)), pg_switch_wal()")
        second = asyncio.create_task(own(two))
        await asyncio.wait({second}, timeout=0.5)
        late.set()
        await asyncio.gather(first, second)
        assert asked[1] > asked[0]
    assert [row["status"] for row in await spine.all("SELECT status FROM idem.outbox")] == ["pending"]
