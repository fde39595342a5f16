"""The pages of the documentation: their order (docs/pages.toml), their titles, and the list of them (docs/llms.txt)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ORDER = ROOT / "docs" / "pages.toml"
RECORDS = "docs/decisions/"


@dataclass(frozen=True)
class Page:
    """A page by its path in the repository, with its heading and its first sentence."""

    path: str
    title: str
    about: str


def parts() -> dict[str, list[Page]]:
    """The pages by the name of their part, in order. Raises ValueError if a page is missing, or stands there twice."""
    found: dict[str, list[Page]] = {}
    for part in tomllib.loads(ORDER.read_text())["part"]:
        paths = [path for name in part["pages"] for path in _paths(name)]
        found[part["name"]] = [page(path) for path in paths]
    found["Decisions"] = [page(path) for path in _paths(RECORDS)]
    named = [each.path for pages in found.values() for each in pages]
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    there |= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    if wrong := sorted(there ^ set(named)) or sorted({path for path in named if named.count(path) > 1}):
        raise ValueError(f"docs/pages.toml must name each page once, and only pages that are there: {', '.join(wrong)}")
    return found


def _paths(name: str) -> list[str]:
    if not name.endswith("/"):
        return [name]
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / name).glob("*.md"))


def page(path: str) -> Page:
    """The page of this path. Raises ValueError if it does not begin with a heading."""
    text = re.sub(r"(?s)<!--.*?-->", "", (ROOT / path).read_text())
    heading = re.match(r"# (.+)\n", text)
    if heading is None:
        raise ValueError(f"{path} does not begin with a heading")
    blocks = (" ".join(block.split()) for block in text[heading.end() :].split("\n\n"))
    about = next((block for block in blocks if re.match(r"(?!```)[\w`*\[]", block)), "")
    return Page(path, heading[1].replace("`", ""), _first_sentence(_plain(about)))


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("**", "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]


def llms() -> str:
    """`docs/llms.txt`: what idem is, and where each subject is explained (llmstxt.org)."""
    found = parts()
    first = found["Begin"][0]
    text = f"# idem\n\n> {first.about}\n\nPaths are those of the repository. Each page is Markdown.\n"
    for name, pages in found.items():
        text += f"\n## {'Optional: decisions' if name == 'Decisions' else name}\n\n"
        text += "".join(f"- [{each.title}]({each.path}): {each.about}\n" for each in pages)
    return text
