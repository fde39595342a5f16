"""docs/adopt/live-system.md, followed word by word: changed are only the address of the provider and the databases."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fix_accept import Acceptor
from fix_sql import engine_of, query
from schema.databases import new_database
from tutorial.page import FENCE, missing

from idem.decisions import Decision, Mismatch, Replay, Retrying
from idem.outbox import config
from idem.outbox.http_server.serving import listen
from idem.testing.bank import Bank, BankAccount, BankSettings

PAGE = Path(__file__).parents[2] / "docs" / "adopt" / "live-system.md"


@pytest.fixture
def databases(server: str) -> Iterator[tuple[str, str]]:
    """The old one and idem's, both empty."""
    with new_database(server) as old, new_database(server) as new:
        yield old, new


@pytest.mark.process
def test_the_page_is_followed(databases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = databases
    settings = BankSettings(log=None, durable=False, accounts=(BankAccount("main", "secret"),))
    monkeypatch.setenv("LEDGER_TOKEN", "secret")
    with Bank(settings).in_thread() as bank:
        follow(tmp_path, old, new, bank.url)
        in_flight = [each for each in bank.log.payments() if each.amount == 1900]
        assert len(in_flight) == 1, "what was in flight was paid once"
        retry = client(tmp_path, new)
        first, second, third = retry("order-17", 4200), retry("order-18", 990), retry("order-19", 1900)
        assert isinstance(first, Replay) and isinstance(second, Replay) and isinstance(third, Replay)
        assert (first.answer.status, first.answer.body) == (201, b'{"payment":"pay_17"}')
        assert (second.answer.status, second.answer.body) == (402, b'{"declined":true}')
        assert in_flight[0].id in third.answer.body.decode()
        assert isinstance(retry("order-17", 1), Mismatch)
        assert isinstance(retry("order-20", 50), Retrying)


def serve(line: str, folder: Path, environment: dict[str, str], port: str, stack: contextlib.ExitStack) -> None:
    """Start it, and wait for its port; it is ended with the stack."""
    with (folder / "log.txt").open("a") as log:
        running = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=folder, env=environment, stdout=log, stderr=log)

    def end() -> None:
        running.terminate()
        assert running.wait(60) == 0

    stack.callback(end)
    until = time.monotonic() + 90
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as probe:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if probe.get("/readyz").status_code == 200:
                    return
            assert running.poll() is None and time.monotonic() < until, (folder / "log.txt").read_text()
            time.sleep(0.1)


def follow(folder: Path, old: str, new: str, url: str) -> None:
    with contextlib.ExitStack() as stack:
        _follow(folder, old, new, url, stack)


def _follow(folder: Path, old: str, new: str, url: str, stack: contextlib.ExitStack) -> None:
    with listen("127.0.0.1", 0) as free:
        port = str(free.getsockname()[1])
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    mine = {k: v for k, v in os.environ.items() if not k.startswith("IDEM_")}
    environment = {**mine, "PATH": paths, "OLD_DATABASE_URL": old, "IDEM_DATABASE_URL": new}
    seen, output = 0, ""
    for language, text in FENCE.findall(PAGE.read_text()):
        text = text.replace("http://localhost:8600", url).replace("8080", port)
        match language:
            case "sql":
                query(old, text)
            case "toml" | "python":
                name = re.match(r"# (\S+)\n", text)
                assert name is not None
                (folder / name[1]).write_text(text)
            case "sh" if text.startswith("export "):
                assert set(re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", text))) <= set(environment)
            case "sh" if text.startswith("# beside it\nidem bank run"):
                assert "--port 8600 --account main:secret" in text
                output = re.sub(r":\d+$", ":8600", url)
            case "sh" if text.startswith("# beside it"):
                serve(text.partition("\n")[2].strip(), folder, environment, port, stack)
            case "sh":
                ran = subprocess.run(
                    ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
                    check=False,
                )  # fmt: skip
                output = ran.stdout + ran.stderr
                assert ran.returncode == (1 if "wrong.jsonl" in text else 0), output
            case "text":
                assert missing(text, output) is None, f"{text}\nwas not seen in\n{output}"
                seen += 1
    assert seen >= 5


def client(folder: Path, url: str):  # type: ignore[no-untyped-def]
    """What the new endpoint decides about an old client's retry."""
    found = config.load(folder / "idem.toml", ({"IDEM_DATABASE_URL": url, "LEDGER_TOKEN": "secret"}))
    acceptor = Acceptor(found.operations, found.providers)
    engine = engine_of(url)

    def retry(key: str, amount: int) -> Decision:
        with engine.begin() as connection:
            return acceptor.accept(connection, "acme", "payments.create", key, {"amount": amount})

    return retry
