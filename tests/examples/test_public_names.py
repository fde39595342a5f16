"""The examples and the demo use what a user has: the names of `idem` and of its public modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
PUBLIC: Final = frozenset(
    {
        "idem", "idem.auditing", "idem.decisions", "idem.errors", "idem.inline", "idem.migrations", "idem.outcomes",
        "idem.sending", "idem.testing", "idem.testing.bank", "idem.testing.embedded", "idem.testing.providers",
    }
)  # fmt: skip
OF_THE_DEMO: Final = frozenset({"idem.outbox.database", "idem.outbox.database.address", "idem.migrations"})
"""How the demo reads the database from outside, to prove what it holds; its command belongs to `idem.cli`."""


def imported(file: Path) -> set[str]:
    """The modules of idem that a file imports; a module taken from its package is one too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.partition(".")[0] == "idem"}


@pytest.mark.parametrize("file", sorted((ROOT / "examples").rglob("*.py")), ids=lambda file: file.name)
def test_an_example_imports_public_names_alone(file: Path) -> None:
    assert imported(file) <= PUBLIC


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "adopt").glob("*.md"))],
    ids=lambda page: page.name,
)  # fmt: skip
def test_a_page_imports_public_names_alone(page: Path) -> None:
    assert set(re.findall(r"(?:from|import) (idem(?:\.\w+)*)", page.read_text())) <= PUBLIC


@pytest.mark.parametrize("file", sorted((ROOT / "cli" / "demo").glob("*.py")), ids=lambda file: file.name)
def test_the_demo_uses_the_library_as_a_user_does(file: Path) -> None:
    assert {name for name in imported(file) if not name.startswith("idem.cli")} <= PUBLIC | OF_THE_DEMO


def test_the_demos_clients_know_nothing_of_the_inside() -> None:
    others = {name for name in imported(ROOT / "cli" / "demo" / "clients.py") if not name.startswith("idem.cli.demo")}
    assert others == {"idem", "idem.decisions", "idem.errors"}
