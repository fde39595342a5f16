"""The page as a reader follows it: its blocks in their order, and what each says of itself."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. `about` is its first line where that is a comment which says where it goes."""

    language: str
    text: str

    @property
    def about(self) -> str:
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if first.startswith("# ") else ""

    @property
    def body(self) -> str:
        return self.text.partition("\n")[2] if self.about else self.text

    @property
    def written(self) -> int:
        """Lines that a reader has to write: neither empty nor only a comment."""
        return sum(bool(line.strip()) and not line.strip().startswith("#") for line in self.body.splitlines())


def blocks() -> Iterator[Block]:
    """Every block of the page."""
    for language, text in FENCE.findall(PAGE.read_text()):
        yield Block(language, text)


def counted() -> dict[str, int]:
    """The table at the end of the page: what was written, and how many lines."""
    table = PAGE.read_text().partition("| file | lines |")[2].partition("\n\n")[0]
    return {name.strip("` "): int(lines) for name, lines in re.findall(r"^\| (.+?) \| (\d+) \|$", table, re.MULTILINE)}


def missing(expected: str, seen: str) -> str | None:
    """The first line of what is to be seen that is not, in this order; None if all are. `…` is anything.

    The columns of a table may be wider.
    """
    at = 0
    for line in expected.splitlines():
        words = [r"\s+".join(map(re.escape, part.split())) for part in line.strip().split("…")]
        found = re.compile(r".*?".join(words).replace(r"\s+.*?", r"\s.*?")).search(seen, at)
        if found is None:
            return line
        at = found.end()
    return None
