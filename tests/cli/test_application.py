"""Every command that knows operations knows those of the application that is named, and has one way to name it."""

import ast
import asyncio
from importlib import import_module
from pathlib import Path

import psycopg
import pytest
from fix_commands import COMMANDS
from fix_desk import Desk
from fix_source import trees
from sqlalchemy import create_engine

LETTER = "one that is there"
ID = "0190b0a0-0000-7000-8000-000000000000"

NEEDED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("db", "grant"): ("nobody", "--as", "daemon"),
    ("intents", "show"): (ID,),
    ("intents", "cancel"): (ID, "--reason", "x", "-y"),
    ("intents", "unblock"): (ID, "--reason", "x", "-y"),
    ("intents", "approve"): (ID, "--reason", "x", "-y"),
    ("intents", "reject"): (ID, "--reason", "x", "-y"),
    ("dlq", "show"): (LETTER,),
    ("dlq", "resolve"): (ID, "--as", "failed_retryable", "--reason", "x", "-y"),
    ("dlq", "redrive"): (ID, "--reason", "x", "-y"),
    ("dlq", "discard"): (ID, "--reason", "x", "-y"),
    ("recover",): ("--lossless", "--reason", "x", "-y"),
    ("pause",): ("keyed", "--reason", "x"),
    ("resume",): ("keyed", "--reason", "x"),
    ("token", "create"): ("t", "--label", "x"),
    ("token", "revoke"): (ID, "--reason", "x", "-y"),
    ("demo",): ("--payments", "1"),
    ("bench",): ("--intents", "1"),
    ("import",): (__file__, "--reason", "x", "-y"),
}
"""What a command must be told."""

ALONE = frozenset({("bench",), ("demo",), ("up",), ("run",), ("bank", "run")})
"""They need a main thread, or have an installation of their own; `up` and `run` are processes in tests/group."""


def test_configurations_are_opened_in_one_place() -> None:
    """Whoever reads idem.toml otherwise knows nothing of the application's operations."""
    found = set()
    for path, tree in trees("cli", holding=r"idem\.outbox\.config\b|\bconfiguration\."):
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module="idem.outbox.config", names=names):
                    found |= {(path, each.name) for each in names}
                case ast.Attribute(value=ast.Name(id="configuration"), attr="load" | "explain"):
                    found.add((path, node.attr))
    allowed = {"Configuration", "source"}
    assert {path for path, name in found if name not in allowed} == {"cli/base/opening.py"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
async def test_who_loads_the_application_says_how_to_name_it_and_only_he(desk: Desk, path: tuple[str, ...]) -> None:
    """With an application that is not there: whoever would have used it says so."""
    if path in ALONE:
        return
    desk.environment["IDEM_APP"] = "nowhere:idem"
    has_option = any("--app" in param.opts for param in COMMANDS[path].params)
    letter = await desk.bury(None, "unmatched_webhook", "test:1")
    needed = [letter if each == LETTER else each for each in NEEDED.get(path, ())]
    result = await desk.cli(*path, *needed)
    assert ("there is no module nowhere" in result.err + result.out) == has_option, result
    if has_option and path[0] != "doctor":
        assert "Traceback" not in result.err


@pytest.fixture
def shop(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An operation that only the application's code has."""
    (tmp_path / "shop_of_doctor.py").write_text(
        "from pydantic import BaseModel\nfrom idem import Idem, Answer, Request\nidem = Idem()\n"
        "class Order(BaseModel):\n    amount: int\n"
        "pay = idem.operation('pay.in_code', Order, provider='keyed', "
        "request=lambda p: Request('POST', '/payments', json={'amount': p.amount}), "
        "answer=lambda o: Answer(201, {}))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in desk.environment.items():
        monkeypatch.setenv(name, value)
    return "shop_of_doctor:idem"


async def test_doctor_knows_the_operations_of_the_code(desk: Desk, shop: str) -> None:
    code = await asyncio.to_thread(import_module, "shop_of_doctor")
    with create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(desk.spine.url)).begin() as connection:
        code.pay.accept(connection, code.Order(amount=1), key="k")
    for options, environment in (((), {"IDEM_APP": shop}), (("--app", shop), {})):
        desk.environment.pop("IDEM_APP", None)
        desk.environment.update(environment)
        result = await desk.cli("doctor", "--json", *options)
        unserved = [each for each in result.data["findings"] if each["check"] == "unserved"]
        assert [each["level"] for each in unserved] == ["ok"], unserved
    desk.environment.pop("IDEM_APP", None)
    result = await desk.cli("doctor", "--json")
    assert "error" in [each["level"] for each in result.data["findings"] if each["check"] == "unserved"]
