"""Where claims begin: behind what was claimed, soon again at the head, and never blind for long."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from idem.outbox.worker.fairness import TenantRound
from idem.outbox.worker.queue_position import AT_MOST, HEAD, LONGEST, OVERLAP, WHOLE, Pace, QueuePosition

AT = datetime(2026, 1, 1, tzinfo=UTC)


def row(seconds: float, number: int) -> SimpleNamespace:
    return SimpleNamespace(available_at=AT + timedelta(seconds=seconds), id=UUID(int=number))


def test_a_full_claim_is_followed_by_one_behind_it() -> None:
    place = QueuePosition()
    assert place.begin(10.0) == HEAD
    place.claimed(HEAD, [row(2, 1), row(1, 9)], AT, full=True, now=10.0, took=0.001)
    assert place.begin(10.1) == (AT + timedelta(seconds=2), UUID(int=1))
    assert place.begin(10.0 + WHOLE) == HEAD


def test_a_claim_that_found_no_more_is_followed_by_one_from_a_moment_before_it() -> None:
    """What was committed late has an earlier time."""
    place = QueuePosition()
    place.claimed(HEAD, [row(2, 1)], AT, full=False, now=10.0, took=0.001)
    assert place.begin(10.1) == (AT - OVERLAP, UUID(int=0))


def test_a_claim_that_was_given_no_room_moves_nothing() -> None:
    """Of a paused lane: what waits there is older than the claim."""
    place = QueuePosition()
    place.claimed(HEAD, [], AT, full=True, now=10.0, took=0.001)
    assert place.begin(10.1) == HEAD


@pytest.mark.parametrize(("took", "again"), [(0.001, WHOLE), (0.1, 2.0), (30.0, LONGEST)])
def test_a_claim_that_took_long_is_made_less_often_but_soon_all_the_same(took: float, again: float) -> None:
    """It may have waited for a lock, or the process have stood still: no row waits 20 times as long for that."""
    place, tenants = QueuePosition(), TenantRound()
    place.claimed(HEAD, [row(2, 1)], AT, full=True, now=10.0, took=took)
    assert place.begin(10.0 + again - 0.01) != HEAD
    assert place.begin(10.0 + again + 0.01) == HEAD
    tenants.queued = True
    tenants.went_round(1, 10.0, took)
    assert tenants.goes_round(10.0 + LONGEST + 0.01)
    tenants.went_round(None, 10.0, took)
    assert tenants.goes_round(10.0), "a round that was not made to its end says nothing"


@pytest.mark.parametrize(
    ("took", "pauses"),
    [
        ([0.001, 0.001], [1.0, 1.0]),
        ([0.4, 0.4, 0.4], [LONGEST, 8.0, 8.0]),
        ([60.0, 60.0, 0.01], [LONGEST, AT_MOST, 1.0]),
        ([0.01, 60.0, 0.01], [1.0, LONGEST, 1.0]),
    ],
)
def test_looks_that_are_slow_one_after_the_other_are_made_less_often(took: list[float], pauses: list[float]) -> None:
    """A million dead entries make each of them slow; a lock, or a process that stood still, makes one slow."""
    pace = Pace(1.0)
    assert [pace.after(each) for each in took] == pauses
