"""Statements have `:name` parameters; each driver has its own form of them."""

import re
from functools import cache
from itertools import count
from typing import Final

WITH_COLON: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@cache
def pyformat(statement: str) -> str:
    """`%(name)s` for each `:name`, as psycopg takes values by their names."""
    return WITH_COLON.sub(r"%(\1)s", statement)


@cache
def in_order(statement: str) -> tuple[str, tuple[str, ...]]:
    """`%s` for each `:name`, and the names in their order."""
    return WITH_COLON.sub("%s", statement), tuple(WITH_COLON.findall(statement))


@cache
def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """`$1`, `$2`, … for each `:name`, and the names in their order."""
    numbers = count(1)
    return WITH_COLON.sub(lambda _: f"${next(numbers)}", statement), tuple(WITH_COLON.findall(statement))
