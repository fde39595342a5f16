"""The head of an answer, over a real socket: it has a bound, and others have their turn while it is read."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import h11
import pytest

from idem.outbox.calls.answer import LINES, PIECE
from idem.outbox.calls.call_end import Lost
from idem.outbox.domain.contract import Contract, Response

SLOW = Contract("bank", connect_timeout=5.0, deadline=60.0)
BODY = b'{"id":"1"}'
OK = b"HTTP/1.1 200 OK\r\n"
REST = b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


def does(*parts: bytes, endless: bytes = b"") -> Callable[[Any], Awaitable[None]]:
    """A server that says this, and then `endless` again and again until the other side goes."""

    async def answers(wire: Any) -> None:
        await wire.request()
        await wire.say(b"".join(parts))
        while endless:
            await wire.say(endless)
        await wire.reader.read()

    return answers


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The answers, those of 1xx too, and lines of heads that the parser of HTTP took at all."""
    taken = [0]
    next_event = h11.Connection.next_event

    def counted(self: Any) -> Any:
        event = next_event(self)
        if isinstance(event, h11.InformationalResponse | h11.Response):
            taken[0] += 1 + len(event.headers.raw_items())
        return event

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    return taken


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "endless", [b"HTTP/1.1 100 \r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"], ids=["bare", "hints"]
)
@pytest.mark.parametrize("times", [1, 4])
async def test_answers_of_1xx_without_end_are_given_up(
    dial: Any, serve: Any, steps: list[int], endless: bytes, times: int
) -> None:
    server = await serve(does(endless=endless * 2000 * times))
    found = await dial(server.origin, contract=SLOW, lease=120.0)
    assert isinstance(found, Lost) and found.seen.error == "HeadTooLong"
    assert found.seen.started
    assert steps[0] <= LINES + PIECE // 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [5_000, 20_000, 80_000])
@pytest.mark.parametrize("line", [b"a:\n", b"Set-Cookie: a=b\r\n", b"a: x\r\n y\r\n"], ids=["short", "cookie", "fold"])
async def test_a_head_of_many_lines_is_given_up_whatever_their_number(
    dial: Any, serve: Any, steps: list[int], number: int, line: bytes
) -> None:
    server = await serve(does(OK, line * number, REST))
    found = await dial(server.origin, contract=SLOW, lease=120.0)
    assert isinstance(found, Lost) and (found.seen.error, steps[0]) == ("HeadTooLong", 0)


@pytest.mark.timeout(120)
async def test_a_head_within_the_bound_is_read_whole(dial: Any, serve: Any) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 400) for number in range(180))
    server = await serve(does(hints, OK, lines, REST))
    found = await dial(server.origin, contract=SLOW, lease=120.0)
    assert isinstance(found, Response) and (found.status, found.complete, found.body) == (200, True, BODY)
    assert found.headers["x-179"] == "v" * 400


@pytest.mark.timeout(120)
async def test_others_have_their_turn_while_a_head_is_read(dial: Any, serve: Any) -> None:
    taken = 0

    async def count() -> None:
        nonlocal taken
        while True:
            taken += 1
            await asyncio.sleep(0)

    head = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 900) for number in range(100))
    server = await serve(does(OK, head, REST))
    counting = asyncio.create_task(count())
    found = await dial(server.origin, contract=SLOW, lease=120.0)
    counting.cancel()
    assert isinstance(found, Response) and found.complete
    assert taken >= len(head) // PIECE


@pytest.mark.timeout(120)
async def test_the_lines_of_a_body_are_not_those_of_its_head(dial: Any, serve: Any) -> None:
    body = b"\n" * 1_000_000
    server = await serve(does(OK, b"Content-Length: %d\r\n\r\n" % len(body), body))
    found = await dial(server.origin, contract=SLOW, lease=120.0)
    assert isinstance(found, Response) and (found.complete, len(found.body)) == (True, len(body))


@pytest.mark.timeout(120)
async def test_the_same_holds_under_tls(
    dial: Any, serve: Any, steps: list[int], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is on what TLS has decrypted, and the body behind a head is read as it comes."""
    sizes: list[int] = []
    receive_data = h11.Connection.receive_data

    def counted(self: Any, data: bytes) -> None:
        sizes.append(len(data))
        receive_data(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", counted)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False
    server = await serve(does(endless=b"HTTP/1.1 100 \r\n\r\n" * 2000), tls=serving)
    found = await dial(server.origin.replace("http:", "https:"), contract=SLOW, lease=120.0, tls=trusting)
    assert isinstance(found, Lost) and found.seen.error == "HeadTooLong"
    assert max(sizes) <= PIECE
    assert steps[0] <= LINES + PIECE // 2
