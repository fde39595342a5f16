"""A payout that takes days, and a customer who must act (hazards 14, 52, 68)."""

import pytest
from fix_spine import Spine
from settling.shop import DAY, HOUR, count_lookups, sends, use

from idem.decisions import InProgress, Replay

PENDING = (60.0, 600.0, HOUR, 6.0 * HOUR, float(DAY))
SLACK = 1.2
"""A wait is spread by a fifth at the most."""


@pytest.mark.parametrize(("fault", "status"), [("pending", 201), ("pending_then_declined", 402)])
async def test_a_payout_that_takes_five_days(spine: Spine, fault: str, status: int) -> None:
    """Polled on its own schedule, no dead letter, no second send; settled by the look that finds its end."""
    use(spine, pending_schedule=PENDING, pending_limit=10.0 * DAY)
    intent = await spine.sent(faults=[f"{fault}:{5 * DAY}"])
    for n, wait in enumerate(PENDING):
        row = await spine.row(intent)
        assert (row["status"], row["lookups"]) == ("awaiting", n)
        due = (row["available_at"] - row["status_since"]).total_seconds() if n == 0 else None
        assert due is None or wait <= due <= wait * SLACK + 5
        await spine.reconcile(after=wait * SLACK)
        assert count_lookups(spine) == n + 1
        decision = spine.accept()
        assert isinstance(decision, InProgress) and decision.status == "awaiting"
    await spine.reconcile(after=DAY * SLACK, times=3)
    assert await spine.letters(intent) == []
    spine.bank.shift_clock(5 * DAY)
    await spine.reconcile(after=DAY * SLACK)
    replay = spine.accept()
    assert isinstance(replay, Replay) and replay.answer.status == status
    assert len(sends(spine)) == 1


async def test_after_its_limit_a_person_is_called_and_it_is_asked_about_once_a_day(spine: Spine) -> None:
    use(spine, pending_schedule=(60.0, 600.0), pending_limit=2.0 * DAY)
    intent = await spine.sent(faults=[f"pending:{30 * DAY}"])
    await spine.reconcile(after=1.9 * DAY)
    assert await spine.letters(intent) == []
    await spine.reconcile(after=0.2 * DAY)
    assert await spine.letters(intent) == ["pending_too_long"]
    before = count_lookups(spine)
    await spine.reconcile(after=0.3 * DAY, times=3)
    assert count_lookups(spine) == before, "once a day from now on"
    await spine.reconcile(after=0.4 * DAY)
    assert count_lookups(spine) == before + 1
    assert isinstance(spine.accept(), InProgress)
    spine.bank.shift_clock(31 * DAY)
    await spine.reconcile(after=1.3 * DAY)
    assert isinstance(spine.accept(), Replay)
    assert await spine.letters(intent) == []
    assert len(sends(spine)) == 1


async def test_a_pending_payout_is_never_replayed_or_cancelled(spine: Spine) -> None:
    """Whatever its look-ups fail with: the provider has accepted it."""
    use(spine, pending_schedule=(60.0, 600.0), pending_limit=10.0 * DAY)
    intent = await spine.sent(faults=[f"pending:{5 * DAY}"])
    spine.bank.script({"method": "GET"}, ["503"] * 10)
    await spine.reconcile(after=1000, times=5)
    await spine.expect(intent, status="awaiting", attempt=1, lookups=0)
    assert len(sends(spine)) == 1
    assert await spine.letters(intent) == []
