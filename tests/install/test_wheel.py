"""What the wheel holds, and what it asks for."""

import re
import zipfile
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from install.conftest import PROJECT
from install.environments import FOLDERS, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from idem.cli.entry import PACKAGES

EXTRAS = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


def test_the_wheel_has_every_file_of_every_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        "/".join([*(["idem"] if folder != "idem" else []), *path.relative_to(ROOT).parts])
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # Of use to whoever writes a migration of ours, in the repository.
    assert sources - there == {"idem/migrations/script.py.mako"}
    assert there <= sources
    assert {Path(name).suffix for name in there} >= {".py", ".sql", ".json", ".toml"}
    assert not [name for name in there if "tests" in Path(name).parts]


def test_an_application_gets_what_it_needs_to_accept_and_no_more() -> None:
    assert names(PROJECT["dependencies"]) == {"sqlalchemy", "pydantic", "rfc8785", "jsonschema"}


@pytest.mark.quick
def test_the_command_names_what_the_extra_daemon_brings() -> None:
    brings = {canonicalize_name(name) for name in names(EXTRAS["daemon"])}
    imported = packages_distributions()
    assert {canonicalize_name(name) for module in PACKAGES for name in imported[module]} == brings


def test_all_is_every_extra() -> None:
    [everything] = EXTRAS["all"]
    assert Requirement(everything).extras == set(EXTRAS) - {"all"}


def test_a_database_for_demo_and_tests_comes_with_what_runs_them() -> None:
    assert "idem-outbox[daemon]" in EXTRAS["embedded"]


def test_ranges_of_one_package_agree() -> None:
    """httpx above all: the proof that a call was not sent was read from the source of these releases."""
    ranges: dict[str, set[str]] = {}
    for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]:
        requirement = Requirement(text)
        ranges.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


@pytest.mark.quick
def test_what_is_installed_for_development_is_what_the_project_asks_for() -> None:
    """requirements-dev.in repeats the run-time dependencies: it and the project say the same."""
    said = names([line for line in (ROOT / "requirements-dev.in").read_text().splitlines() if re.match(r"\w", line)])
    assert names([*PROJECT["dependencies"], *EXTRAS["daemon"], *EXTRAS["fastapi"]]) <= said
    for text in [*PROJECT["dependencies"], *EXTRAS["daemon"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(distribution(requirement.name).version, prereleases=True), text
