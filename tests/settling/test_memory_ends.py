"""A send that was allowed leaves before the provider may forget the first one, however long its process was stopped."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from fix_spine import KEYED, Spine
from fix_steps import claim_one
from fix_waiting import stopping
from settling.asking import Asking
from settling.shop import sends, use

from idem.outbox.worker import exact_limits
from idem.outcomes import CouldNotAsk, NotExecuted

LEFT = 0.5
REMEMBERED = """
UPDATE idem.outbox SET {moment} = statement_timestamp() - make_interval(secs => replay_window - %(left)s),
                       available_at = statement_timestamp() - interval '1 s'
 WHERE intent_id = %(intent)s RETURNING id
"""


async def remembered(spine: Spine, intent: UUID, moment: str) -> None:
    """The provider remembers the first send for half a second more."""
    assert await spine.all(REMEMBERED.format(moment=moment), left=LEFT, intent=intent)


@pytest.mark.parametrize(("begun", "stopped", "more"), [(True, 0.0, 1), (True, 1.0, 0), (False, 1.0, 0)])
async def test_a_replay_leaves_inside_the_memory_or_not_at_all(
    spine: Spine, begun: bool, stopped: float, more: int
) -> None:
    """Between the claim, which found half a second left, and the send this process stands still."""
    use(spine, lookups=False)
    intent = await spine.sent(faults=["act_then_drop"])
    await remembered(spine, intent, "first_sent_at")
    before = len(sends(spine))
    async with stopping(Asking(spine)) as asking:
        claim = await asking.claim(replay_first=begun)
        assert claim.replay and claim.begun is begun
        await asyncio.sleep(stopped)
        answered = await asking.asker.ask(claim)
    assert len(sends(spine)) == before + more
    if not more:
        assert answered is None or isinstance(answered.lookup, CouldNotAsk)


@pytest.mark.parametrize(("stopped", "sent"), [(0.0, 1), (1.0, 0)])
async def test_a_doubted_row_leaves_inside_the_memory_or_not_at_all(spine: Spine, stopped: float, sent: int) -> None:
    """The database went back to an earlier moment: what it lost may have sent this row, which is queued again."""
    intent = spine.accepted()
    await remembered(spine, intent, "doubted_since")
    claimed = await claim_one(spine)
    await asyncio.sleep(stopped)
    async with stopping(Asking(spine)) as asking:
        outcome, _ = await asking.lane.send(
            claimed.row.id, claimed.request, lease_ends=claimed.lease_ends, start=lambda: True, send_by=claimed.send_by
        )
    assert len(sends(spine)) == sent
    assert isinstance(outcome, NotExecuted) == (not sent)


@pytest.mark.parametrize(
    ("accepted", "stated"), [(86400, 7200), (7200, 86400), (7200, 7200)], ids=["shortened", "lengthened", "the same"]
)
async def test_the_last_look_comes_before_the_shorter_of_both_memories_ends(
    spine: Spine, accepted: int, stated: int
) -> None:
    """The operator changes the provider's memory while the row is open; its schedule has the next look-up in an hour.

    The look after the end could not be a replay any more. The provider answers the first replays with its own 500, so
    each of them uses up a look of the schedule.
    """
    margin, passed = KEYED.key.margin, 6000.0
    use(spine, lookups=False, key=replace(KEYED.key, retention=accepted))
    intent = await spine.sent(faults=["act_then_drop", "500_before_acting"])
    use(spine, lookups=False, key=replace(KEYED.key, retention=stated))
    await spine.all("UPDATE idem.outbox SET lookups = 3 RETURNING id")
    await spine.reconcile(after=passed)
    assert len(sends(spine)) == 2
    await spine.expect(intent, status="unknown", lookups=4)
    due = await spine.one("SELECT extract(epoch FROM available_at - first_sent_at)::float8 AS after FROM idem.outbox")
    assert passed < due["after"] < 7200 - margin
    await spine.reconcile(after=due["after"] - passed + 1)
    assert len(sends(spine)) == 3 and spine.effects() == 1
    assert await spine.row_if_any(intent) is None, "the last replay is inside the memory, and settles it"


async def test_a_row_that_was_settled_before_its_request_was_read_is_left_out(spine: Spine) -> None:
    """In a lane with an exact limit headers and body are read by a second statement."""
    intent = spine.accepted()
    row = await spine.row(intent)
    assert await spine.run(exact_limits.frozen, uuid4(), [row["id"]]) == {}
