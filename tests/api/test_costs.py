"""What one accept and one replay cost over HTTP: statements, round trips and steps of the loop, never seconds."""

import asyncio
import socket
import struct
import sys
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from fix_api import PAY, Client, client
from fix_line import Line, through_a_line
from fix_spine import Spine

from idem.testing.proxy import Direction, ProxyAction

BODY = b'{"amount": 100}'
REQUESTS = 20


@dataclass
class Counting(Line):
    """A line to the database that counts what goes to the server: pieces, and messages by their type."""

    pieces: int = 0
    messages: Counter[str] = field(default_factory=Counter)

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        if direction == "to_server":
            self.pieces += 1
            at = 0
            while at < len(data):
                self.messages[chr(data[at])] += 1
                at += 1 + struct.unpack_from("!I", data, at + 1)[0]
        return super().__call__(number, direction, data)


def exchange(at: str, token: str, keys: list[str], status: bytes) -> None:
    """Ask with these keys, one after the other, over one kept connection of this thread."""
    host, port = at.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        for key in keys:
            head = (
                f"POST {PAY} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
            )
            line.sendall(head.encode() + BODY)
            got = b""
            while not got.partition(b"\r\n\r\n")[2]:
                part = line.recv(65536)
                assert part, got
                got += part
            assert got.startswith(b"HTTP/1.1 " + status), got


async def ask(api: Client, keys: list[str], status: bytes) -> None:
    await asyncio.to_thread(exchange, api.url, api.token, keys, status)


async def steps(work: Coroutine[Any, Any, None]) -> int:
    """Functions that this thread calls meanwhile, those of C too: the loop with all of its tasks, and no client."""
    calls = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        await work
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", ["accept", "replay"])
async def test_a_request_is_one_statement_and_one_round_trip(
    spine: Spine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """No BEGIN, no COMMIT, no look at the token, no question whether the connection is there."""
    monkeypatch.setattr("fix_line.Line", Counting)
    async with through_a_line(spine, pool=1) as (api, line):
        assert isinstance(line, Counting)
        await spine.sent("known")
        # The first ones read the secret and the token, and prepare the statement.
        await ask(api, [f"warm-{number}" for number in range(8)], b"202")
        line.pieces, line.messages = 0, Counter()
        if kind == "accept":
            await ask(api, [f"new-{number}" for number in range(REQUESTS)], b"202")
        else:
            await ask(api, ["known"] * REQUESTS, b"201")
        executed = line.messages["E"] + line.messages["Q"]
        # The tenant's counts are written every two seconds, and a connection that had nothing to do is asked.
        assert REQUESTS <= executed <= REQUESTS + 4
        assert REQUESTS <= line.pieces <= REQUESTS + 8
        assert line.messages["P"] <= 2, "the statement is prepared"


@pytest.mark.parametrize(("kind", "most"), [("accept", 1450), ("replay", 1050)])
async def test_the_loop_takes_few_steps_for_a_request(spine: Spine, kind: str, most: int) -> None:
    """A third of what it took when each layer did its own work: about 900 for a replay, 1,300 for an accept."""
    # As an operation of idem.toml, whose code needs no thread.
    spine.know(templated=True)
    async with client(spine) as api:
        await spine.sent("known")
        await ask(api, [f"warm-{number}" for number in range(8)], b"202")
        new = [f"new-{number}" for number in range(REQUESTS)]
        taken = await steps(ask(api, new, b"202") if kind == "accept" else ask(api, ["known"] * REQUESTS, b"201"))
        assert taken / REQUESTS < most
