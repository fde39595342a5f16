"""A user's type checker sees the types of idem: the wheel carries the marker of PEP 561."""

import subprocess
import sys
from collections.abc import Callable

import pytest
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
reveal_type(charge)
wrong: int = Answer(201)
charge.no_such_thing()
"""
RIGHT = """
from idem import AsyncCall, Call, Operation, response
from idem.outcomes import Absent, LookupOutcome, Outcome, Succeeded
from idem.sending import Question, Sending, SendRequest


def send(request: SendRequest, call: Sending) -> Outcome:
    return Succeeded(request.key)


async def look(question: Question) -> LookupOutcome:
    return Absent()


idem.provider("mail", send=send, lookup=look, deadline="20s", value_at_risk="none")
mail = idem.operation("mails.send", provider="mail", key_ttl="72h", answer=lambda o, intent: Answer(200, intent))
note = idem.operation("notes.create")


async def asynchronous(call: AsyncCall, note: Operation) -> int:
    return response(await call.answer(wait=3)).status_code


def synchronous(call: Call, charge: Operation[Charge]) -> Answer:
    return call.answer()


@mail.on_settled(name="shop.mailed", begin="first")
async def mailed(db: object, settled: Settled[object]) -> None: ...
"""
MISTAKES = [
    ('idem.operation("x", Charge, key_tll="72h")', 'Unexpected keyword argument "key_tll" for "operation" of "Idem"'),
    ('idem.operation("x", Charge, redrive="never")', 'Argument "redrive" to "operation" of "Idem" has incompatible'),
    ('idem.operation("x", Charge, label=lambda p: p.cemts)', '"Charge" has no attribute "cemts"'),
    ('idem.provider("bank", dedline="3s")', 'Unexpected keyword argument "dedline" for "provider" of "Idem"'),
    ('idem.provider("bank", settle=["guess"])', "List item 0 has incompatible type \"Literal['guess']\""),
    (
        'charge.on_settled(begin="last")',
        'No overload variant of "on_settled" of "Operation" matches argument',
    ),
]


@pytest.fixture(scope="module")
def check(beside: Callable[..., Environment], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """What mypy says about a program: its lines, without the name of the file."""
    environment = beside("starlette")
    here = tmp_path_factory.mktemp("typed")

    def check(program: str) -> list[str]:
        file = here / "shop.py"
        file.write_text(program)
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment.python,
             "--cache-dir", str(here / "cache"), str(file)],
            cwd=here, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return [line.partition(":")[2] for line in done.stdout.splitlines() if line.startswith("shop.py")]

    return check


def test_mypy_checks_a_users_program_against_idem(check: Callable[[str], list[str]]) -> None:
    said = check(PROGRAM)
    errors = [line for line in said if " error: " in line]
    assert len(errors) == 2, said
    assert "Incompatible types in assignment" in errors[0]
    assert "no_such_thing" in errors[1]
    notes = [line for line in said if "Revealed type" in line]
    assert "Idem" in notes[0] and "Operation[shop.Charge]" in notes[1]


def test_mypy_accepts_what_the_public_modules_are_for(check: Callable[[str], list[str]]) -> None:
    assert check(PROGRAM.partition("reveal_type")[0] + RIGHT) == []


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_a_typing_mistake_in_an_option_is_exactly_one_error(
    check: Callable[[str], list[str]], line: str, message: str
) -> None:
    program = PROGRAM.partition("reveal_type")[0] + line + "\n"
    [error] = [said for said in check(program) if " error: " in said]
    assert error.startswith(f"{program.count(chr(10))}: error: {message}")
