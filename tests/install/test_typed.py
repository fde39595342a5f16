"""A user's type checker sees the types of idem: the wheel carries the marker of PEP 561."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from install.environments import Environment

PROGRAM = """
from pydantic import BaseModel
from sqlalchemy.orm import Session

from idem import Answer, Idem, Request, Settled


class Charge(BaseModel):
    order: int
    cents: int


idem = Idem()
charge = idem.operation(
    "charges.create",
    Charge,
    provider="ledger",
    request=lambda p: Request("POST", "/charges", json={"cents": p.cents}),
    answer=lambda o: Answer(201 if o.succeeded else 402, {"charge": o.reference}),
)


@charge.on_settled
def mark(db: Session, settled: Settled[Charge]) -> None:
    cents: int = settled.params.cents


reveal_type(idem)
reveal_type(Answer(201))
wrong: int = Answer(201)
charge.no_such_thing()
"""


def test_mypy_checks_a_users_program_against_idem(beside: Callable[..., Environment], tmp_path: Path) -> None:
    environment = beside()
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment.python,
         "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    said = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("shop.py")]
    assert [line.partition(":")[0] for line in said].count("error") == 2, done.stdout
    assert any("idem.Idem" in line or "Idem" in line for line in said if line.startswith("note")), done.stdout
    assert any("Incompatible types in assignment" in line for line in said), done.stdout
    assert any("no_such_thing" in line for line in said), done.stdout
