"""Attacks on the HTTP API: lines that say nothing, answers that cannot be sent, heads that nobody's library sends."""

import asyncio

import pytest
from fix_api import PAY, Client, client
from fix_line import Line, through_a_line
from fix_spine import Spine

from idem import Answer
from idem.outbox.api import reading
from idem.testing.proxy import Direction, ProxyAction


class Mute(Line):
    """A line that loses everything, in both directions, while `silent`: nothing is refused, nothing is closed."""

    silent = False

    def __call__(self, number: int, direction: Direction, data: bytes) -> ProxyAction:
        return "swallow" if self.silent else super().__call__(number, direction, data)


async def test_a_database_that_falls_silent_keeps_nobody_waiting(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters, new tokens and the end of the process: all within a bound, and all as before when it speaks again."""
    monkeypatch.setattr("fix_line.Line", Mute)
    async with through_a_line(spine, token_cache=0) as (api, line):
        assert isinstance(line, Mute)
        waiting = asyncio.create_task(api.ask(key="waits", wait=2))
        while not api.api.waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        line.silent = True
        unknown = asyncio.create_task(api.http.get("/v1/intents"))
        assert (await asyncio.wait_for(waiting, 15)).status_code == 503
        assert (await asyncio.wait_for(unknown, 15)).status_code == 503
        line.silent = False
        for _ in range(100):
            if (await api.http.get("/v1/intents")).status_code == 200:
                break
            await asyncio.sleep(0.1)
        assert (await api.ask(key="waits", wait=1)).status_code == 409


@pytest.mark.parametrize(
    "answer",
    [
        Answer(204, b"a body", {}),
        Answer(304, b"a body", {}),
        Answer(200, b"x", {"a name": "a"}),
        Answer(200, b"x", {"": "a"}),
        Answer(200, b"x", {"x": " a"}),
        Answer(200, b"x", {"x": "a\r\nset-cookie: b"}),
    ],
    ids=str,
)
async def test_an_answer_that_cannot_be_sent_is_not_stored(spine: Spine, answer: Answer) -> None:
    """Stored, it would end the connection of every retry, for ever."""
    spine.know("odd", answer=lambda *_: answer)
    async with client(spine) as api:
        intent = api.intent(await api.ask(path="/v1/intents/odd"))
        await spine.work()
        assert (await api.ask(path="/v1/intents/odd")).status_code == 201
        assert await spine.letters(intent) == ["answer_failed"]


@pytest.mark.parametrize(
    "body",
    [b'{"a":"\\ud800"}', b"NaN", b"[" * 100_000, b"1e999", b"1" * 5000, b"\xff", b"", b'"\\u0000"'],
    ids=lambda body: repr(body[:12]),
)
async def test_an_answer_that_is_no_json_can_be_looked_at(spine: Spine, body: bytes) -> None:
    spine.know("odd", answer=lambda *_: Answer(200, body))
    async with client(spine) as api:
        intent = api.intent(await api.ask(path="/v1/intents/odd"))
        await spine.work()
        assert (await api.ask(path="/v1/intents/odd")).content == body
        assert (await api.http.get(f"/v1/intents/{intent}")).status_code == 200


async def raw(api: Client, message: bytes, seconds: float = 5) -> bytes:
    """All that comes back until the line is closed."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = b""
    try:
        writer.write(message)
        async with asyncio.timeout(seconds):
            while part := await reader.read(65536):
                got += part
    except TimeoutError:
        got += b"<<open>>"
    finally:
        writer.close()
    return got


def post(
    api: Client, body: bytes = b'{"amount": 100}', *, host: bytes = b"x", path: str = PAY, more: bytes = b""
) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\nIdempotency-Key: k1\r\n"
        b"Content-Type: application/json\r\n%b\r\n%b" % (path.encode(), host, api.token.encode(), more, body)
    )


@pytest.mark.parametrize("host", [b"[", b"[::1", b"a]b", b"x?y=1", b"x#", b"", b"\xe2\x84\x80", b"a:b:c"])
async def test_the_query_is_read_whatever_the_host_says(api: Client, host: bytes) -> None:
    length = b"Content-Length: 15\r\nConnection: close\r\n"
    assert b" 202 " in (await raw(api, post(api, host=host, path=f"{PAY}?a=1", more=length)))[:20]
    assert (await api.ask(path=f"{PAY}?a=1")).status_code == 409
    assert b" 422 " in (await raw(api, post(api, host=host, path=f"{PAY}?a=2", more=length)))[:20]


async def test_lines_that_fell_silent_are_given_up(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent on them is lost for ever, as after a fail-over: each held a connection of the pool."""
    monkeypatch.setattr("fix_line.Line", Mute)
    async with through_a_line(spine, timeout=1, pool=2) as (api, line):
        assert isinstance(line, Mute)
        assert (await api.ask()).status_code == 202
        line.silent = True
        asked = await asyncio.gather(*(api.ask(key=f"lost{n}") for n in range(8)))
        assert {each.status_code for each in asked} == {503}
        line.silent = False
        async with asyncio.timeout(20):
            while (await api.ask(key="after")).status_code == 503:
                await asyncio.sleep(0.1)
        for n in range(8):
            assert (await api.ask(key=f"lost{n}")).status_code == 202


async def test_a_body_that_never_comes_ends(api: Client, spine: Spine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the request, and the end of the process until it is killed with a 500."""
    monkeypatch.setattr(reading, "BODY_TIME", 0.3)
    got = await raw(api, post(api, b"{", more=b"Content-Length: 15\r\n"))
    assert b" 400 " in got[:20]
    assert b"body_invalid" in got
    assert b"<<open>>" not in got
    assert await spine.all("SELECT FROM idem.intents") == []
