"""The column of a bank that knows no keys: every send executes."""

import pytest
from matrix.cells import Cell, plain
from matrix.columns import TIMEOUT, cells, hold, sent_again_when_absent
from matrix.conftest import Runs

pytestmark = pytest.mark.timeout(TIMEOUT)


@pytest.mark.parametrize(("cell", "webhooks", "turn"), cells("none"))
def test_one_effect_all_settled_and_nothing_forbidden(runs: Runs, cell: Cell, webhooks: bool, turn: int) -> None:
    hold(runs(plain(cell.variant.replay, webhooks), turn, webhooks=webhooks), cell)


def test_nothing_is_sent_again_after_an_effect(runs: Runs) -> None:
    sent_again_when_absent(runs(plain("none", False), webhooks=False))
