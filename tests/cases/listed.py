"""The cases of docs/cases.md with their tests, read when a test asks for them."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any


@cache
def cases() -> list[Any]:
    """`.ci/cases.py` reads the register and every test."""
    return list(runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "cases.py"))["read"]())
