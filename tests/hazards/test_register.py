"""The register of hazards names tests that exist, and leaves out no number that is due."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HAZARDS = runpy.run_path(str(Path(__file__).with_name("register.py")))["HAZARDS"]
DUE = {
    *range(1, 12), *range(14, 30), *range(31, 41), *range(42, 73), 74, 75,
}  # fmt: skip


def test_no_hazard_that_is_due_is_without_a_test() -> None:
    assert set(HAZARDS) == DUE


def test_every_test_that_is_named_exists() -> None:
    for number, (_, tests) in HAZARDS.items():
        assert tests, number
        for path, name in tests:
            assert re.search(rf"(?m)^(async )?def {name}\(", ROOT.joinpath(path).read_text()), (number, path, name)
