"""Beside the matrix: the end of the retention, cancel by key, effects that come late, and nothing to ask."""

from typing import Any

import pytest
from matrix import cells
from matrix.cells import Cell
from matrix.checks import told_after_its_cancel
from matrix.columns import TIMEOUT, hold
from matrix.conftest import Runs
from matrix.crossing import CROSSING, TO_THE_END
from matrix.variants import CANCEL_FIRST, LATE, MUTE, RETENTION, cancelling

pytestmark = pytest.mark.timeout(TIMEOUT)

LOST = ("act_then_drop", "drop_before_acting", "act_then_500", "500_cached", "stall_before_acting", "broken_body")
CANCELLED = tuple(
    cell
    for replay in ("stored", "success_only")
    for blocks in (True, False)
    for cell in cells.some(cancelling(replay, blocks_late_requests=blocks), *LOST)
)
FIRST = cells.some(CANCEL_FIRST, *LOST)
LATE_ONES = (
    *cells.some(LATE, "500_rolled_forward", seconds=600),
    *cells.some(LATE, "act_then_500", "500_before_acting", "drop_before_acting", "503"),
)
SILENT = cells.some(MUTE, "act_then_drop", "drop_before_acting", "act_then_500", "429", "decline", "422_before_acting")


def each(known: tuple[Cell, ...]) -> Any:
    return pytest.mark.parametrize("cell", known, ids=[cell.name for cell in known])


@each(CROSSING)
def test_no_replay_comes_near_the_end_of_the_retention(runs: Runs, cell: Cell) -> None:
    """The bank answers nothing until it has forgotten the keys; then it is asked, and what is absent is sent anew."""
    seen = runs(CROSSING, webhooks=False, steps=TO_THE_END)
    hold(seen, cell)
    first = min(send.at for send in seen.log.sends(account=cell.name))
    asked = [r for r in seen.log.requests if r.account == cell.name and r.asks == "lookup"]
    within = [r for r in asked if cell.variant.retention < r.at - first < RETENTION]
    assert within, "nobody came by while a replay was forbidden, so nothing was forbidden"


@pytest.mark.parametrize("webhooks", [False, True], ids=["polled", "webhooks"])
@each(CANCELLED)
def test_what_is_cancelled_by_key_is_made_anew_once(runs: Runs, cell: Cell, webhooks: bool) -> None:
    seen = runs(CANCELLED, webhooks=webhooks)
    hold(seen, cell)


@each(FIRST)
def test_an_event_after_the_cancel_is_confirmed_before_it_is_believed(runs: Runs, cell: Cell) -> None:
    """It tells of a payment that stood when the event was made, and no longer stands."""
    seen = runs(FIRST, webhooks=True)
    hold(seen, cell)
    if cell.faults[0] in ("act_then_drop", "act_then_500", "broken_body"):
        late = [told for told in seen.of(cell) if told_after_its_cancel(seen, told)]
        assert late, "no event came after a cancel"
        assert {told.state for told in late} == {"completed"}


def test_the_cancels_were_needed(runs: Runs) -> None:
    seen = runs(CANCELLED, webhooks=False)
    assert {each.account.rpartition("--")[0] for each in seen.log.cancels() if each.account} >= {
        cell.variant.name for cell in CANCELLED
    }


@pytest.mark.parametrize("webhooks", [False, True], ids=["polled", "webhooks"])
@each(LATE_ONES)
def test_what_may_act_late_is_settled_by_a_cancel_that_blocks_late_requests(
    runs: Runs, cell: Cell, webhooks: bool
) -> None:
    hold(runs(LATE_ONES, webhooks=webhooks), cell)


@pytest.mark.parametrize("webhooks", [False, True], ids=["polled", "webhooks"])
@each(SILENT)
def test_where_nothing_can_be_asked_nothing_is_sent_again(runs: Runs, cell: Cell, webhooks: bool) -> None:
    """Without an event a person decides (hazard 39)."""
    hold(runs(SILENT, webhooks=webhooks), cell)
