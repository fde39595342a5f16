"""What the pages for operators and newcomers say, held against the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from idem.outbox.config.loading import explain
from idem.reconciler.webhooks.applying import Verdict

ROOT = Path(__file__).parents[2]
ON_CALL = (ROOT / "docs" / "on-call.md").read_text()


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_every_verdict_about_a_webhook_is_explained(verdict: str) -> None:
    table = ON_CALL.partition("## What becomes of a webhook")[2].partition("\n## ")[0]
    assert f"\n| `{verdict}` | " in table


@pytest.mark.parametrize("kind", ["replay", "look", "cancel", "fetched", "later_fact", "ledger_check"])
def test_kinds_of_evidence_are_explained(kind: str) -> None:
    table = ON_CALL.partition("## What the timeline says")[2].partition("\n## ")[0]
    assert f"`{kind}`" in table


def test_the_configuration_of_the_readme_has_no_finding(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    place = tmp_path / "idem.toml"
    place.write_text(block)
    assert explain(place, {"BANK_TOKEN": "t"}) == []


def test_no_page_links_to_what_is_not_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert lost == []


def test_the_page_for_contributors_has_the_floors() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    drawn = page.partition("\noutbox:")[2].partition("```")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (each for each in contracts if each.get("containers") == ["idem.outbox"])
    assert [line.strip() for line in drawn.splitlines() if line.strip()] == [
        each.replace(" | ", ", ") for each in rooms["layers"]
    ]
