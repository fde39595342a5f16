"""No regular expression of idem costs more than its text is long. All that stand in the code are found there."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from costs.ambiguity import costly
from fix_source import texts, trees

PACKAGES = ("outbox", "reconciler", "sweeper", "testing", "cli", "idem")
USES = ("compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")
SEARCHES = frozenset({"search", "split", "findall", "finditer", "sub", "subn"})

WRITTEN_BY_US = {
    ("testing/bank/shape.py", "lookup.target"): "the author of a test writes it",
    ("outbox/config/schema_patterns.py", "text"): "compiled to see whether Python warns of it, and never run",
    ("testing/conformance/expectations.py", "pattern"): "a file of the kit holds it",
    ("testing/conformance/expectations.py", "NAMED[named]"): "the kit holds it",
}
"""Expressions that no constant holds, and why no client chooses what they are."""

OPERATORS_OWN = {
    "outbox/config/source.py": "reads idem.toml, whose author pays for it",
    "outbox/config/account_settings.py": "reads idem.toml, and at most 253 characters of it",
    "migrations/statements.py": "reads our own SQL",
}


@dataclass(frozen=True)
class Found:
    """An expression in the code, with how it is used."""

    where: str
    pattern: str | bytes
    flags: int
    uses: frozenset[str]

    @property
    def costly(self) -> bool:
        return any(
            costly(self.pattern, self.flags, search=use in SEARCHES, anchored=use == "fullmatch") for use in self.uses
        )


@cache
def found() -> list[Found]:
    """Every expression in the code."""
    holding = rf"\bre\.({'|'.join(USES)})\("
    files = trees(*PACKAGES, holding=holding)
    return [each for shown, tree in files if shown not in OPERATORS_OWN for each in in_file(shown, tree)]


def in_file(shown: str, tree: ast.Module) -> Iterator[Found]:
    named = {id(node.value): target.id for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
             if isinstance(target, ast.Name)}  # fmt: skip
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr in USES):
            continue
        written = ast.unparse(node.args[0])
        if (shown, written) in WRITTEN_BY_US:
            continue
        pattern, flags = evaluated(shown, node)
        uses = {node.func.attr} if node.func.attr != "compile" else uses_of(named.get(id(node), ""))
        yield Found(f"{shown}: {written}", pattern, flags, frozenset(uses))


def evaluated(shown: str, node: ast.Call) -> tuple[Any, int]:
    name = shown.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name if name.startswith("idem.") else f"idem.{name}")
    flags = node.args[1:] if node.func.attr == "compile" else []  # type: ignore[attr-defined]
    flags += [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
    pattern = eval(ast.unparse(node.args[0]), vars(module).copy())
    return pattern, int(eval(ast.unparse(flags[0]), vars(module).copy())) if flags else 0


@cache
def methods() -> dict[str, set[str]]:
    """The methods that are called on each name, anywhere in the code."""
    called = defaultdict(set)
    for _, text in texts(*PACKAGES):
        for name, method in re.findall(r"\b(\w+)\.([a-z]+)\(", text):
            called[name].add(method)
    return called


def uses_of(name: str) -> set[str]:
    """The methods that are called on a compiled expression of this name, anywhere; unknown ones are the worst."""
    used = methods().get(name, set()) & set(USES)
    return used if name and used else {"search", "fullmatch"}


def test_the_expressions_of_the_code_are_found() -> None:
    every = found()
    assert len(every) > 40
    assert {"outbox/api/reading.py: ", "outbox/domain/keys.py: ", "outbox/values/canonical.py: "} <= {
        each.where.partition(": ")[0] + ": " for each in every
    }


def test_no_text_makes_an_expression_try_ever_more_ways() -> None:
    assert [each.where for each in found() if each.costly] == []


@pytest.mark.parametrize(
    ("pattern", "search", "anchored"),
    [
        (r'"(?:[^"\\]|\\.)*"|[\[\]{}]', True, False),
        (r"(a+)+b", False, False),
        (r"\s*$", True, False),
        (r"a*a*b", False, False),
        (r"(?:[a-z0-9-]+)+\.", False, True),
        (r"\w+\d+", False, True),
    ],
)
def test_an_expression_that_does_is_told(pattern: str, search: bool, anchored: bool) -> None:
    assert costly(pattern, re.DOTALL, search=search, anchored=anchored)


@pytest.mark.parametrize(
    ("pattern", "search", "anchored"),
    [(r"[\[\]{}]", True, False), (r"\s*<([^<>]*)>", False, False), (r"[!-~]+(?:[ \t]+[!-~]+)*", False, True)],
)
def test_an_expression_that_does_not_is_let_alone(pattern: str, search: bool, anchored: bool) -> None:
    assert not costly(pattern, 0, search=search, anchored=anchored)
