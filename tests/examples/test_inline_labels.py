"""The program that calls its carrier itself: what nobody knows is asked about, and no second call is made."""

import sys

import pytest
from examples.town import Town

FILES = ("inline_labels.py", "idem.toml")
EVENTS = False


@pytest.fixture(scope="module", autouse=True)
def daemons(town: Town) -> None:
    town.daemons("inline_labels:idem")


def buy(town: Town, id: str, code: int = 0) -> str:
    """The last line: idem's own log lines of the call may stand above it."""
    said = town.run(sys.executable, "inline_labels.py", id, "700", code=code).splitlines()
    return said[-1] if said else ""


def test_a_line_that_breaks_after_the_purchase_buys_one_label(town: Town) -> None:
    town.bank.script(None, ["act_then_drop"])
    buy(town, "parcel-1", code=75)
    town.until("SELECT state = 'completed' FROM idem.intents WHERE idempotency_key = 'label-parcel-1'")
    first, again = buy(town, "parcel-1"), buy(town, "parcel-1")
    [payment] = town.bank.log.payments()
    assert first == again == f'201 {{"label":"{payment.id}"}}'


def test_it_is_bought_once_however_often_it_runs(town: Town) -> None:
    before = town.effects()
    assert buy(town, "parcel-2") == buy(town, "parcel-2")
    assert town.effects() == before + 1


def test_a_carrier_that_cannot_be_reached_leaves_it_to_the_next_run(town: Town) -> None:
    before = town.effects()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(town.environment, "CARRIER_URL", "http://127.0.0.1:1")
        assert buy(town, "parcel-3", code=1).startswith("503 ")
    assert buy(town, "parcel-3").startswith("201 ")
    assert town.effects() == before + 1
