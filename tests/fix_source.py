"""The product's own code, for tests that search it. Parsing all takes a second, so say what a file must contain."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("cli", "idem", "migrations", "outbox", "reconciler", "sweeper", "testing")


def texts(*folders: str, holding: str = "", suffixes: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, str]]:
    """(path from the root, text) of each file in these folders whose text matches the regular expression."""
    for folder in folders or PRODUCT:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and re.search(holding, text := path.read_text()):
                yield path.relative_to(ROOT).as_posix(), text


def trees(*folders: str, holding: str = "") -> Iterator[tuple[str, ast.Module]]:
    """The same with the parsed files."""
    return ((path, ast.parse(text)) for path, text in texts(*folders, holding=holding))
