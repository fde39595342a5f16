"""The columns in which a replay answers: the bank stores answers under a key, or shows what it has."""

import pytest
from matrix.cells import NOT_APPLICABLE, Cell, plain
from matrix.columns import TIMEOUT, cells, hold
from matrix.conftest import Runs
from matrix.variants import REPLAYS, Replay

from idem.testing.bank import FaultName

pytestmark = pytest.mark.timeout(TIMEOUT)


@pytest.mark.parametrize(("cell", "webhooks", "turn"), cells("stored", "current"))
def test_one_effect_all_settled_and_nothing_forbidden(runs: Runs, cell: Cell, webhooks: bool, turn: int) -> None:
    hold(runs(plain(cell.variant.replay, webhooks), turn, webhooks=webhooks), cell)


@pytest.mark.parametrize("replay", ["stored", "current"])
def test_the_column_replays(runs: Runs, replay: Replay) -> None:
    """Or it would say nothing about replays."""
    seen = runs(plain(replay, False), webhooks=False)
    assert sum(each.after_an_effect for each in seen.log.resends()) > 20


def test_every_fault_of_the_bank_has_its_cell() -> None:
    for kind in REPLAYS:
        for webhooks in (False, True):
            alone = {cell.faults[0] for cell in plain(kind, webhooks) if len(cell.faults) == 1}
            left_out = {name for known, name in NOT_APPLICABLE if known == kind}
            assert alone | left_out == set(FaultName)
    assert all(NOT_APPLICABLE.values()), "each with its reason"
