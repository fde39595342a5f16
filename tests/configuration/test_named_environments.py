"""Each environment that a page or an example names is one that idem.toml takes."""

import re
from pathlib import Path

import pytest

from idem.outbox.config.settings import InstallationSettings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.toml")]
NAMED = sorted(
    {
        (path, name)
        for path in PAGES
        for name in re.findall(r"""\benvironment\s*=\s*["']([^"']+)["']""", path.read_text())
    }
)


def test_the_runbook_names_one_for_a_copy() -> None:
    assert (ROOT / "docs" / "on-call.md", "production-copy") in NAMED and len(NAMED) > 10


@pytest.mark.parametrize(("page", "name"), NAMED, ids=lambda each: getattr(each, "name", each))
def test_it_can_be_configured(page: Path, name: str) -> None:
    assert InstallationSettings(environment=name).environment == name
