"""`make docs` builds a site from the pages: each page once, no request to anybody else, no broken link."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+rel=["']?stylesheet[^>]+href=["']?(?:https?:)?//"""
)


def test_each_page_has_its_place() -> None:
    """A page that nobody lists cannot be found, and one that is gone would be a broken link."""
    runpy.run_path(str(ROOT / ".ci" / "pages.py"), run_name="pages")["parts"]()


@pytest.fixture(scope="module")
def tools() -> Path:
    """The Python that has the site's tools."""
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / ".venv-docs" / "bin" / "python"


@pytest.mark.process
def test_the_site_asks_nobody_else_for_anything_and_finds_words(tools: Path) -> None:
    pages = list((ROOT / "build" / "site").rglob("*.html"))
    assert len(pages) > 50
    assert [str(page) for page in pages if ELSEWHERE.search(page.read_text())] == []
    found = json.loads((ROOT / "build" / "site" / "search" / "search_index.json").read_text())["docs"]
    assert any("dead letter" in each["text"] and each["location"].startswith("docs/on-call.html") for each in found)
    assert not any(each["location"].startswith("outbox/") for each in found), "source is not searched"


@pytest.mark.process
@pytest.mark.parametrize("link", ["docs/tutorial.md#no-such-heading", "docs/no-such-page.md", "no/such/file.py"])
def test_a_broken_link_fails(tools: Path, tmp_path: Path, link: str) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
    shutil.copytree(ROOT / ".ci", clone / ".ci", dirs_exist_ok=True)
    with (clone / "README.md").open("a") as readme:
        readme.write(f"\nA [broken link]({link}).\n")
    built = subprocess.run([tools, ".ci/build_site.py"], cwd=clone, capture_output=True, text=True)
    assert built.returncode != 0
    assert link.partition("#")[0].rpartition("/")[2] in built.stdout + built.stderr
