"""`--app`: the daemons serve the operations and handlers of an application; what is wrong with it is said in a line."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from adopt.shop import CONFIG
from fix_sql import engine_of
from fix_waiting import until_it_holds

from idem.cli.main import main
from idem.testing.bank import Bank

MODULE = """
from idem import Answer, Idem, Request, Settled
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.orm import Session


class Charge(BaseModel):
    amount: int


idem = Idem()
charge = idem.operation(
    "payments.create", Charge, provider="ledger",
    request=lambda p: Request("POST", "/payments", json={"amount": p.amount, "currency": "eur"}),
    answer=lambda o: Answer(201, {"payment": o.reference}),
)


@charge.on_settled
def mark(db: Session, s: Settled[Charge]) -> None:
    db.execute(text("INSERT INTO attempts SELECT gen_random_uuid(), id FROM orders"))
"""


@pytest.fixture
def place(tmp_path: Path, shop_url: str, bank: Bank) -> Iterator[Path]:
    """A folder with the application, its idem.toml, and a folder `cli` of its own that must shadow nothing."""
    tmp_path.joinpath("payments.py").write_text(MODULE)
    tmp_path.joinpath("idem.toml").write_text(CONFIG.replace("https://ledger.example", bank.url))
    for mine in ("cli", "outbox", "migrations", "testing"):
        tmp_path.joinpath(mine).mkdir()
        tmp_path.joinpath(mine, "__init__.py").write_text("raise RuntimeError('this is not ours')\n")
    yield tmp_path


def environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IDEM_")}
    return {**kept, "IDEM_DATABASE_URL": url, "LEDGER_TOKEN": "secret"}


def idem(place: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "idem.cli.main", *arguments], cwd=place, env=environment(url), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("command", [("worker", "run"), ("run", "--single-process", "--no-api")], ids=" ".join)
async def test_a_worker_serves_the_app(place: Path, shop_url: str, bank: Bank, command: tuple[str, ...]) -> None:
    # In a thread: the bank answers on this one.
    await asyncio.to_thread(_work, place, shop_url, command)
    assert len(bank.log.payments()) == 1


def _work(place: Path, shop_url: str, command: tuple[str, ...]) -> None:
    worker = idem(place, shop_url, *command, "--app", "payments:idem")
    try:
        with psycopg.connect(shop_url, autocommit=True) as look:
            until_it_holds(lambda: look.execute("SELECT FROM idem.event_handlers").fetchall(), every=0.1)
            accept(place, shop_url)
            until_it_holds(lambda: look.execute("SELECT FROM attempts").fetchall(), every=0.1)
            assert look.execute("SELECT state FROM idem.intents").fetchall() == [("completed",)]
    finally:
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=30)
        print(said)  # noqa: T201
    assert worker.returncode == 0, said


def accept(place: Path, url: str) -> None:
    sys.path.insert(0, str(place))
    before, here = dict(os.environ), Path.cwd()
    try:
        os.chdir(place)
        os.environ["IDEM_DATABASE_URL"] = url
        import payments  # type: ignore[import-not-found]

        with engine_of(url).begin() as db:
            payments.charge.accept(db, payments.Charge(amount=7), key="k1")
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        sys.path.remove(str(place))
        sys.modules.pop("payments", None)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("payments", "is not module:name"),
        ("paymants:idem", "there is no module paymants in"),
        ("payments:idam", "payments:idam is missing"),
        ("payments:Charge", "expected an Idem"),
        ("broken:idem", "broken cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_mistake_is_one_line(
    place: Path, shop_url: str, app: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.joinpath("broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    for name, value in (environment(shop_url) | {"IDEM_APP": ""}).items():
        monkeypatch.setenv(name, value)
    assert main(["worker", "run", "--app", app]) == 2
    assert said in capsys.readouterr().err
    sys.modules.pop("payments", None)


@pytest.mark.process
def test_the_setting_serves_every_command(place: Path, shop_url: str) -> None:
    """`app` in idem.toml: an operator's command knows the operation too."""
    toml = place / "idem.toml"
    toml.write_text('app = "payments:idem"\n' + toml.read_text())
    checked = idem(place, shop_url, "reconcile", "--json")
    output, _ = checked.communicate(timeout=60)
    assert checked.returncode == 0, output
