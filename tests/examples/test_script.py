"""The nightly script, run again and again: each row is paid once, and its later runs tell how it ended."""

import sys

import pytest
from examples.town import Town

FILES = ("script.py", "idem.toml")
EVENTS = False
HEAD = "id,iban,amount\n"
ROWS = "n-1,DE89370400440532013000,125000\nn-2,FR7630006000011234567890189,99\n"


@pytest.fixture(scope="module", autouse=True)
def daemons(town: Town) -> None:
    town.daemons("script:idem")


def run(town: Town, rows: str, code: int = 0) -> list[str]:
    (town.folder / "payouts.csv").write_text(HEAD + rows)
    return town.run(sys.executable, "script.py", "payouts.csv", code=code).splitlines()


def test_a_second_run_pays_nobody_twice(town: Town) -> None:
    town.bank.script(None, ["act_then_drop"])
    assert run(town, ROWS) == ["2 accepted"]
    town.until("SELECT count(*) = 2 FROM idem.intents WHERE state = 'completed'")
    # A row above the others: its place in the file is nobody's key.
    town.bank.script(None, ["decline"])
    assert run(town, "n-0,ES9121000418450200051332,5\n" + ROWS) == ["1 accepted, 2 paid"]
    town.until("SELECT count(*) = 3 FROM idem.intents WHERE state = 'completed'")
    assert len([each for each in town.bank.log.payments() if each.status == "succeeded"]) == 2
    *wrong, told = run(town, "n-0,ES9121000418450200051332,5\n" + ROWS.replace("99", "100"), code=1)
    assert told == "1 paid"
    assert [each.partition(":")[0] for each in wrong] == ["n-0", "n-2"]
    assert "refused" in wrong[0]
    assert "has changed" in wrong[1]
    assert town.effects() == 3
