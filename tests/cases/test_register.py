"""Every case of docs/cases.md has a test that names it, or a rule with the tests that hold it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CASES = runpy.run_path(str(ROOT / ".ci" / "cases.py"))["read"]()
FIRST, LAST, COUNT = "IB-001", "IB-196", 119 + 16


def test_no_case_is_without_a_test() -> None:
    assert (CASES[0].number, CASES[-1].number, len(CASES)) == (FIRST, LAST, COUNT)
    assert [case.number for case in CASES if not case.named and not (case.rule and case.holding)] == []


def test_every_test_that_holds_a_rule_exists() -> None:
    for case in CASES:
        for test in case.holding:
            path, _, name = test.partition("::")
            text = (ROOT / "tests" / path).read_text()
            assert re.search(rf"(?m)^(async )?def {name}\(", text), (case.number, test)
