"""The register of hazards names tests that exist, and leaves out no number that is due."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HAZARDS = tomllib.loads(Path(__file__).with_name("register.toml").read_text())
DUE = {
    *range(1, 12), *range(14, 41), *range(42, 73), 74, 75,
}  # fmt: skip


def test_no_hazard_that_is_due_is_without_a_test() -> None:
    assert set(map(int, HAZARDS)) == DUE


def test_every_test_that_is_named_exists() -> None:
    for number, hazard in HAZARDS.items():
        assert hazard["tests"], number
        for test in hazard["tests"]:
            path, name = test.split("::")
            assert re.search(rf"(?m)^(async )?def {name}\(", ROOT.joinpath("tests", path).read_text()), (number, test)
