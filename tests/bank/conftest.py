"""A bank for a test, and a client that speaks to it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fix_server import Asked, served
from fix_waiting import until_it_holds

from idem.testing.bank import Bank, BankAccount, BankSettings

Open = Callable[..., Bank]


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "bank.jsonl"


@pytest.fixture
def open_bank(log_path: Path) -> Iterator[Open]:
    """Open a bank in a thread: members of `BankAccount` go to its only account, `accounts` replaces it."""
    with ExitStack() as stack:

        def open_(**given: Any) -> Bank:
            names = BankAccount.__dataclass_fields__
            own = {name: given.pop(name) for name in list(given) if name in names and name != "fault_rate"}
            given.setdefault("accounts", (BankAccount(**own),))
            given.setdefault("log", log_path)
            return stack.enter_context(Bank(BankSettings(**given)).in_thread())

        yield open_


@pytest.fixture
def bank(open_bank: Open) -> Bank:
    """A bank with one account."""
    return open_bank()


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """A client without certificates: to load them takes longer than most of these tests."""
    with httpx.Client(timeout=10, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture
def pay(http: httpx.Client) -> Callable[..., httpx.Response]:
    """POST a payment of 500 eur."""

    def pay_(bank: Bank | str, key: str | None = None, *, fault: str | None = None, **body: Any) -> httpx.Response:
        headers = {"x-bank-fault": fault} if fault else {}
        if key is not None:
            headers["idempotency-key"] = key
        timeout = body.pop("timeout", 10)
        if (token := body.pop("token", None)) is not None:
            headers["authorization"] = f"Bearer {token}"
        url = bank if isinstance(bank, str) else bank.url
        content = {"amount": 500, "currency": "eur", **body}
        return http.post(f"{url}/payments", json=content, headers=headers, timeout=timeout)

    return pay_


@pytest.fixture
def look(http: httpx.Client) -> Callable[..., list[dict[str, Any]]]:
    """GET the list of payments; the query as keyword arguments."""

    def look_(bank: Bank, **query: Any) -> list[dict[str, Any]]:
        response = http.get(f"{bank.url}/payments", params=query)
        assert response.status_code == 200, response.text
        data: list[dict[str, Any]] = response.json()["data"]
        return data

    return look_


@pytest.fixture
def raw() -> Callable[..., tuple[bytes, BaseException | None]]:
    """POST a payment over a bare socket; what came back until the end, and the error that ended it."""

    def raw_(
        bank: Bank, key: str = "k", *, fault: str = "none", seconds: float = 5
    ) -> tuple[bytes, BaseException | None]:
        body = json.dumps({"amount": 500, "currency": "eur"}).encode()
        head = (
            f"POST /payments HTTP/1.1\r\nhost: bank\r\ncontent-length: {len(body)}\r\n"
            f"idempotency-key: {key}\r\nx-bank-fault: {fault}\r\nconnection: close\r\n\r\n"
        )
        got = b""
        with socket.create_connection(("127.0.0.1", bank.port), timeout=seconds) as sock:
            sock.sendall(head.encode() + body)
            end = time.monotonic() + seconds
            try:
                while data := sock.recv(65536):
                    got += data
                    sock.settimeout(max(0.01, end - time.monotonic()))
            except OSError as error:
                return got, error
        return got, None

    return raw_


@pytest.fixture
def bank_process(tmp_path: Path) -> Iterator[Callable[[BankSettings], tuple[subprocess.Popen[str], str]]]:
    """Start the bank as a process of its own; the process and its URL."""
    started: list[subprocess.Popen[str]] = []

    def start(settings: BankSettings) -> tuple[subprocess.Popen[str], str]:
        path = tmp_path / f"settings-{len(started)}.json"
        path.write_text(settings.to_json())
        process = subprocess.Popen(
            [sys.executable, "-m", "idem.testing.bank", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


class Receiver:
    """Takes webhooks, answers with the next of `statuses` (204 when they are used up), keeps what it got."""

    def __init__(self):
        self.got = []
        self.statuses = []
        self.url = ""

    def answer(self, asked: Asked) -> tuple[int, bytes]:
        self.got.append((time.monotonic(), asked.headers, asked.body))
        return self.statuses.pop(0) if self.statuses else 204, b""

    def wait(self, count, seconds=6.0):
        until_it_holds(lambda: len(self.got) >= count, seconds)
        return [json.loads(body) for _, _, body in self.got]


@pytest.fixture
def receiver():
    it = Receiver()
    with served(it.answer) as url:
        it.url = f"{url}/hooks"
        yield it
