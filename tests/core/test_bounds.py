"""Every lower bound of pyproject.toml is one that `make test-lowest` runs with, and CI runs each leg of the tests."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUND = re.compile(r"([a-z0-9-]+)(?:\[[a-z,]+\])?(?:>=|==)([0-9.]+)")


def test_ib_192_each_lower_bound_is_the_version_that_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    tried = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (ROOT / "requirements-lowest.txt").read_text(), re.MULTILINE))
    for each in declared:
        if each.startswith("idem-outbox"):
            continue
        found = BOUND.match(each)
        assert found is not None, f"{each} has no lower bound"
        name, bound = found.groups()
        assert _numbers(tried[name]) == _numbers(bound), f"{each}: {tried[name]} is what is tried (make lock-lowest)"


def test_ib_192_ci_runs_every_leg_of_the_tests() -> None:
    legs = re.findall(r"^(test[a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    run = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {"test", "test-lowest", "test-newest"} <= set(legs)
    assert [leg for leg in legs if f"make {leg}" not in run] == []


def _numbers(version: str) -> list[int]:
    numbers = [int(each) for each in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers
