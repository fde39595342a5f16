"""The clients' helpers against the real API: one wish, one effect, whatever the line and the server do meanwhile."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import fix_api
import httpx
import psycopg
import pytest
from fix_api import PAY, Client
from fix_server import Asked, serving
from fix_spine import Spine
from fix_waiting import until

from idem.outbox.config.http_settings import ApiSettings
from idem.testing.proxy import Direction, Proxy, ProxyAction

CLIENTS = Path(__file__).resolve().parents[2] / "examples" / "clients"


def load() -> ModuleType:
    spec = util.spec_from_file_location("retrying", CLIENTS / "retrying.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


retrying = load()
NODE = shutil.which("node")
SCRIPT = """
import { send, NotFinal } from "%s";
const { url, token, key, amount, patience, timeout, wait } = JSON.parse(process.argv[1]);
const headers = { "Authorization": `Bearer ${token}`, "Content-Type": "application/json" };
if (wait !== null) headers["Prefer"] = `wait=${wait}`;
try {
  const response = await send(url, { key, patience, timeout, headers, body: JSON.stringify({ amount }) });
  console.log(JSON.stringify([response.status, await response.text()]));
} catch (error) {
  if (!(error instanceof NotFinal)) throw error;
  console.log(JSON.stringify(["not final", error.key, error.response?.status ?? null]));
}
"""

Told = list[Any]
"""Status and body, or `not final`, the key and the last status."""


@dataclass
class Line:
    """The API behind a proxy, which counts requests and does with the answers what it is told."""

    client: Client
    proxy: Proxy
    answers: list[ProxyAction]
    asked: int = 0
    keys: int = 0

    def watch(self, _connection: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server":
            if data.startswith(b"POST"):
                self.asked += 1
            self.keys += data.lower().count(b"idempotency-key: k1\r\n")
            return "pass"
        return self.answers.pop(0) if self.answers else "pass"


@pytest.fixture
async def line(spine: Spine) -> AsyncIterator[Line]:
    async with fix_api.client(spine, settings=ApiSettings(port=0, timeout=2)) as client:
        at = urlsplit(client.url)
        assert at.hostname is not None and at.port is not None
        async with Proxy((at.hostname, at.port)) as proxy:
            made = Line(client, proxy, [])
            proxy.watch = made.watch
            yield made


Sender = Callable[..., Coroutine[Any, Any, Told]]


async def by_httpx(line: Line, *, patience: float = 30, timeout: float = 5, wait: int | None = None) -> Told:
    def go() -> Told:
        with httpx.Client(base_url=f"http://127.0.0.1:{line.proxy.port}", timeout=timeout) as http:
            return outcome(lambda: retrying.send(http, "POST", PAY, key="k1", **_request(line, patience, wait)))

    return await asyncio.to_thread(go)


async def by_async_httpx(line: Line, *, patience: float = 30, timeout: float = 5, wait: int | None = None) -> Told:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{line.proxy.port}", timeout=timeout) as http:
        try:
            said = await retrying.send_async(http, "POST", PAY, key="k1", **_request(line, patience, wait))
        except retrying.NotFinal as error:
            return ["not final", error.key, error.response and error.response.status_code]
        return [said.status_code, said.text]


async def by_fetch(line: Line, *, patience: float = 30, timeout: float = 5, wait: int | None = None) -> Told:
    if NODE is None:
        pytest.skip("there is no node here")
    given = {
        "url": f"http://127.0.0.1:{line.proxy.port}{PAY}", "token": line.client.token, "key": "k1", "amount": 100,
        "patience": patience * 1000, "timeout": timeout * 1000, "wait": wait,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        NODE, "--input-type=module", "-e", SCRIPT % (CLIENTS / "retrying.mjs").as_uri(), json.dumps(given),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, wrong = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, wrong.decode()
    found: Told = json.loads(said)
    return found


def _request(line: Line, patience: float, wait: int | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {line.client.token}"}
    if wait is not None:
        headers["Prefer"] = f"wait={wait}"
    return {"patience": patience, "headers": headers, "json": {"amount": 100}}


def outcome(go: Callable[[], httpx.Response]) -> Told:
    try:
        said = go()
    except retrying.NotFinal as error:
        return ["not final", error.key, error.response and error.response.status_code]
    return [said.status_code, said.text]


SENDERS = pytest.mark.parametrize("send", [by_httpx, by_async_httpx, by_fetch])


async def told(line: Line, send: Sender, sending: asyncio.Task[Told]) -> Told:
    """What it says in the end. One that asked while the call was being made may have been told to come back later than
    its patience lasts: then it does so, with the same key."""
    said = await sending
    return await send(line) if said[0] == "not final" else said


@SENDERS
async def test_a_dropped_line_202_and_409_are_followed_to_the_answer(line: Line, spine: Spine, send: Sender) -> None:
    line.answers = ["cut"]  # the first answer is lost: it was accepted
    sending = asyncio.create_task(send(line))
    await until(lambda: line.asked >= 3)  # the second and third were told to come again
    assert spine.effects() == 0
    await spine.work()
    status, body = await told(line, send, sending)
    assert (status, json.loads(body)["status"]) == (201, "succeeded")
    assert spine.effects() == 1
    assert line.keys == line.asked  # the same key each time
    [row] = await spine.all("SELECT count(*) AS n FROM idem.intents")
    assert row["n"] == 1


@SENDERS
async def test_a_time_out_is_sent_again_with_the_same_key(line: Line, spine: Spine, send: Sender) -> None:
    line.answers = ["swallow"]
    sending = asyncio.create_task(send(line, timeout=1))
    await until(lambda: not line.answers)  # it is accepted, and the client does not know
    await spine.work()
    assert (await told(line, send, sending))[0] == 201
    assert (line.keys, spine.effects()) == (line.asked, 1)
    assert line.asked >= 2


@SENDERS
async def test_a_database_that_is_away_is_awaited(line: Line, spine: Spine, superuser_url: str, send: Sender) -> None:
    name = spine.url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(superuser_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            refused: list[bytes] = []

            def watch(number: int, direction: Direction, data: bytes) -> ProxyAction:
                if direction == "to_client" and data.startswith(b"HTTP/1.1 503"):
                    refused.append(data)
                return line.watch(number, direction, data)

            line.proxy.watch = watch
            sending = asyncio.create_task(send(line, timeout=20))
            await until(lambda: refused)
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    before = line.asked
    await until(lambda: line.asked > before)
    for _ in range(100):
        await spine.work()
        if spine.effects():
            break
        await asyncio.sleep(0.1)
    assert (await told(line, send, sending))[0] == 201
    assert spine.effects() == 1


@SENDERS
async def test_it_gives_up_after_its_patience_and_hands_the_key_back(line: Line, spine: Spine, send: Sender) -> None:
    begun = time.monotonic()
    assert await send(line, patience=2.5) in (["not final", "k1", 202], ["not final", "k1", 409])
    assert time.monotonic() - begun < 20
    await spine.work()
    assert (await send(line))[0] == 201  # later, the same key
    assert spine.effects() == 1


@SENDERS
async def test_an_answer_that_says_no_is_an_answer(line: Line, spine: Spine, send: Sender) -> None:
    spine.bank.script(None, ["decline"])
    sending = asyncio.create_task(send(line))
    await until(lambda: line.asked >= 2)
    await spine.work()
    assert (await told(line, send, sending))[0] == 402
    # Other content under the same key is refused at once, and not tried again.
    asked = line.asked
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{line.proxy.port}") as http:
        request = _request(line, 5, None) | {"json": {"amount": 101}}
        assert (await retrying.send_async(http, "POST", PAY, key="k1", **request)).status_code == 422
    assert line.asked == asked + 1


class Busy:
    """A server of somebody else's, for answers that ours gives rarely: 429 with a date, 409 that is final."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []

    def __call__(self, asked: Asked) -> bytes:
        self.asked.append(time.monotonic())
        return self.answers.pop(0)


async def test_retry_after_is_obeyed_and_a_409_without_it_is_final() -> None:
    busy = Busy(
        b"HTTP/1.1 429 x\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 409 x\r\nContent-Length: 9\r\nConnection: close\r\n\r\ncancelled",
    )
    async with serving(busy) as url, httpx.AsyncClient() as http:
        response = await retrying.send_async(http, "POST", f"{url}/", key="k1", content=b"{}")
    assert (response.status_code, response.text) == (409, "cancelled")
    assert busy.asked[1] - busy.asked[0] >= 0.99


async def test_a_wrong_request_is_not_tried_again() -> None:
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.UnsupportedProtocol):
            await retrying.send_async(http, "POST", "ftp://127.0.0.1/", key="k1")
