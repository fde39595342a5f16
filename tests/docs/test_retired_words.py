"""No identifier, setting, metric, log event or SQL of the product holds a retired word of docs/glossary.md.

The table "Retired words" names each word, its successor and where it may stay. Only words in backticks are looked for
in code; the others are words of prose. SQL is read whole, with its texts, hints and comments.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from fix_source import PRODUCT, ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SQL_NAME = re.compile(r"[a-z]*_[a-z_]*")
IS_SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b")
LOGS = {"debug", "info", "warning", "error"}


@dataclass(frozen=True)
class Retired:
    """A word by its parts, what to write instead, and the names that may keep it."""

    parts: tuple[str, ...]
    now: str
    stays: frozenset[str]

    def is_in(self, name: str) -> bool:
        if name.strip("_") in self.stays:
            return False
        words = f" {' '.join(parts_of(name))} "
        for phrase in self.stays:  # `dead letter` in the third column allows the word wherever `dead` is before it
            words = words.replace(f" {phrase} ", "  ") if " " in phrase else words
        return f" {' '.join(self.parts)} " in words


@cache
def parts_of(name: str) -> tuple[str, ...]:
    """The words of which a name is put together."""
    return tuple(part.lower() for part in PARTS.findall(name))


def retired(page: str) -> list[Retired]:
    """The words in backticks of the table."""
    table = page.partition("## Retired words")[2].partition("\n## ")[0]
    words = []
    for line in table.splitlines():
        if not line.startswith("|") or line.startswith(("| old", "| ---")):
            continue
        old, now, stays = (cell.strip() for cell in line.strip("|").split("|"))
        kept = frozenset(re.findall(r"`([^`]+)`", stays))
        words += [Retired(tuple(word.split(" ")), now, kept) for word in re.findall(r"`([^`]+)`", old)]
    return words


def names(source: str) -> Iterator[tuple[int, str]]:
    """Each identifier, name in SQL, metric and log event of a Python file, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.Name():
                yield node.lineno, node.id
            case ast.Attribute():
                yield node.lineno, node.attr
            case ast.arg() | ast.keyword():
                yield node.lineno, node.arg or ""
            case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str(event)), *_]) if level in LOGS:
                yield node.lineno, event
            case ast.Constant(value=str(text)) if text.startswith("idem_"):
                yield node.lineno, text
            case ast.Constant(value=str(text)) if IS_SQL.search(text):
                yield from ((node.lineno, name) for line in text.splitlines() for name in sql_names(line))


def sql_names(line: str) -> list[str]:
    """The names of a line of SQL that are put together, and all its other words as one name."""
    return [*SQL_NAME.findall(line), SQL_NAME.sub(" ", line).strip()]


def found_in(path: Path, words: list[Retired]) -> Iterator[str]:
    """Each retired word of a file: where it is, and what to write."""
    text = path.read_text()
    if path.suffix == ".sql":
        named = [(number, name) for number, line in enumerate(text.splitlines(), 1) for name in sql_names(line)]
    else:
        named = list(names(text))
    for number, name in sorted(set(named)):
        for word in words:
            if word.is_in(name):
                old = " ".join(word.parts)
                yield f"{path.relative_to(ROOT)}:{number}: {name}: `{old}` is retired, write {word.now}"


WORDS = retired(GLOSSARY.read_text())


@pytest.mark.unit
@pytest.mark.parametrize("folder", PRODUCT)
def test_no_name_of_the_product_holds_a_retired_word(folder: str) -> None:
    files = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sql"))
    assert files
    assert [line for path in files for line in found_in(path, WORDS)] == []


TABLE = """## Retired words

| old | word now | stays in |
| --- | --- | --- |
| `wish`, `sign of life` | request | `WISH_LIST`: its name in a protocol |
| `letter` | dead letter | `dead letter` |
| line | connection | |
"""


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def wish(): ...", ["wish"]),
        ("class KeyedWish: ...", ["KeyedWish"]),
        ("x.as_wish = 1", ["as_wish"]),
        ("f(wish=1)", ["wish"]),
        ("sign_of_life = 1", ["sign_of_life"]),
        ("log.info('wish_made')", ["wish_made"]),
        ("METRIC = 'idem_wish_total'", ["idem_wish_total"]),
        ("SQL = 'SELECT t.wish FROM t'", ["SELECT t.wish FROM t"]),
        ("SQL = 'SELECT a_wish FROM t'", ["a_wish"]),
        ("letters = DeadLetter, dead_letter", []),
        ("letter = 1", ["letter"]),
        ("WISH_LIST = wishful = line = 1", []),
        ("SQL = \"SELECT 1 WHERE a = 'wish'\"", ["SELECT 1 WHERE a = 'wish'"]),
        ("SQL = 'SELECT 1 -- no sign of life'", ["SELECT 1 -- no sign of life"]),
        ("SQL = 'SELECT 1 -- a dead letter'", []),
        ('"""A wish."""', []),
    ],
)
def test_a_retired_word_is_found_as_a_part_of_a_name(source: str, found: list[str]) -> None:
    words = retired(TABLE)
    assert [name for _, name in names(source) if any(word.is_in(name) for word in words)] == found
