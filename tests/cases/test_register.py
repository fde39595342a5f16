"""Every case of docs/cases.md has a test that names it, or a rule with the tests that hold it."""

import re
from pathlib import Path

from cases.listed import cases

ROOT = Path(__file__).parent.parent.parent
FIRST, LAST, COUNT = "IB-001", "IB-196", 119 + 16


def test_no_case_is_without_a_test() -> None:
    assert (cases()[0].number, cases()[-1].number, len(cases())) == (FIRST, LAST, COUNT)
    assert [case.number for case in cases() if not case.named and not (case.rule and case.holding)] == []


def test_every_test_that_holds_a_rule_exists() -> None:
    for case in cases():
        for test in case.holding:
            path, _, name = test.partition("::")
            text = (ROOT / "tests" / path).read_text()
            assert re.search(rf"(?m)^(async )?def {name}\(", text), (case.number, test)
