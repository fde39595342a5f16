"""The table of docs/cases.md: each case of tests/cases/register.toml, with the tests that name it or hold its rule."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
NUMBERS = re.compile(r"(?:IB-|ib_)((?:\d{3})(?:(?:, IB-|, | and IB-| and |_)\d{3})*)")


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `named` are tests that say its id, `holding` those that hold its rule; both `file::test`."""

    number: str
    what: str
    rule: str
    named: tuple[str, ...]
    holding: tuple[str, ...]


def read() -> list[Case]:
    """Every case of the register, in its order."""
    found: dict[str, list[str]] = {}
    for number, test in _named():
        found.setdefault(number, []).append(test)
    register = tomllib.loads((TESTS / "cases" / "register.toml").read_text())
    return [
        Case(number, case["what"], case.get("rule", ""), tuple(found.get(number, ())), tuple(case.get("tests", ())))
        for number, case in register.items()
    ]


def table() -> str:
    """The rows of the page."""
    text = "| case | what went wrong | what holds here |\n| --- | --- | --- |\n"
    for case in read():
        tests = [
            f"`{name}` ({path})" for path, _, name in (test.partition("::") for test in (*case.named, *case.holding))
        ]
        text += f"| {case.number} | {case.what} | {'<br>'.join(filter(None, [case.rule, *tests]))} |\n"
    return text


def _named() -> Iterator[tuple[str, str]]:
    """(case, test) for each test function whose name or docstring, or whose module's docstring, names the case."""
    for path in sorted(TESTS.glob("**/test_*.py")):
        module = ast.parse(path.read_text())
        tests = [
            node
            for node in ast.walk(module)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
        ]
        place = path.relative_to(TESTS).as_posix()
        own = {test.name: _numbers(f"{test.name} {ast.get_docstring(test) or ''}") for test in tests}
        shared = _numbers(ast.get_docstring(module) or "")
        for name, numbers in own.items():
            for number in numbers:
                yield number, f"{place}::{name}"
        # The module's docstring speaks for its first test, where no test says it itself.
        for number in sorted(shared - set().union(*own.values())):
            yield number, f"{place}::{tests[0].name}"


def _numbers(text: str) -> set[str]:
    return {f"IB-{number}" for group in NUMBERS.findall(text) for number in re.findall(r"\d{3}", group)}
