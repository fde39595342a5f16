"""A request that is here whole is read and answered as h11 reads and answers it."""

import asyncio
import random
from typing import Any

import h11
import pytest
from fix_serving import served
from hypothesis import example, given
from hypothesis import strategies as st
from serving.apps import said
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES

from idem.outbox.http_server import whole_requests
from idem.outbox.http_server.framing import Wire

HOST = b"Host: x\r\n"
PIECES = st.sampled_from(
    [
        b"POST", b"GET", b"HEAD", b"CONNECT", b" ", b"  ", b"/a", b"/a?b=%2f", b"*", b"http://y/a", b" HTTP/1.1",
        b" HTTP/1.0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", HOST, b"host: y\r\n", b"Content-Length: 3\r\n",
        b"Content-Length: 0\r\n", b"content-length: 3, 3\r\n", b"Content-Length: +3\r\n", b"Content-Length : 3\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Upgrade: h2c\r\n",
        b"X: a\r\n", b"X:\r\n", b"X: \t a b \r\n", b"X: \xe4\r\n", b"X: \x01\r\n", b"X: \x00\r\n", b" folded\r\n",
        b": a\r\n", b"X Y: a\r\n", b"abc", b"\x7f", b":",
    ]
)  # fmt: skip
MOSTLY_WHOLE = st.builds(
    lambda method, target, fields, body: method + b" " + target + b" HTTP/1.1\r\n" + b"".join(fields) + b"\r\n" + body,
    st.sampled_from([b"POST", b"GET", b"DELETE", b"PUT", b"PATCH", b"HEAD"]),
    st.sampled_from([b"/a", b"/a?b=%2f", b"//", b"*", b"http://y/a", b"/\xe4"]),
    st.lists(PIECES.filter(lambda piece: b":" in piece), max_size=5).map(lambda fields: [HOST, *fields]),
    st.sampled_from([b"", b"abc", b"ab", b"abcGET / HTTP/1.1\r\n"]),
)


@given(MOSTLY_WHOLE | st.lists(PIECES, max_size=14).map(b"".join) | st.binary(max_size=60))
@example(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
def test_what_is_read_whole_is_what_h11_reads(data: bytes) -> None:
    found = whole_requests.read(data)
    if found is None:
        return
    wire = Wire()
    wire.receive_data(data)
    request = wire.next_event()
    assert (request.method.decode(), request.target, request.http_version) == (found.method, found.target, b"1.1")
    assert [(name.lower(), value) for name, value in request.headers] == found.headers
    body = b""
    while not isinstance(event := wire.next_event(), h11.EndOfMessage):
        body += event.data
    assert body == found.body
    assert not wire.trailing_data[0], "nothing is left for a second request"
    # Nothing about it wants another end of the connection than the next request.
    assert wire.their_state is h11.DONE and not wire.they_are_waiting_for_100_continue


def test_ordinary_requests_are_read_whole() -> None:
    head = b"POST /v1/intents/a?b=c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 2\r\n\r\n"
    assert whole_requests.read(head + b"{}") is not None
    assert whole_requests.read(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") is not None
    assert whole_requests.read(head + b"{") is None, "a part of it"
    assert whole_requests.read(head + b"{}" + head) is None, "more than it"


NAMES = st.sampled_from(
    [b"X", b"content-type", b"Content-Length", b"connection", b"date", b"a b", b"", b"host", b"x\r\n"]
)
VALUES = st.sampled_from(
    [b"a", b"", b"a b", b" a", b"a ", b"a\r\nx: y", b"\xe4", b"\x00", b"\x7f", b"close", b"3", b"2"]
)


@given(
    st.sampled_from([100, 101, 200, 201, 202, 204, 205, 304, 400, 422, 503, 599, 999]),
    st.lists(st.tuples(NAMES, VALUES), max_size=4),
    st.sampled_from([b"", b"ab", b"abc"]),
    st.booleans(),
)
@example(200, [(b"X", b"a\r\nx: y")], b"ab", True)
@example(200, [(b"connection", b"3")], b"abc", False)
@example(200, [(b"X", b"a\r\nset-cookie: b"), (b"x\r\n", b"")], b"", True)
@example(201, [(b"X", b"a b"), (b"content-type", b"\xe4")], b"ab", True)
def test_what_is_written_whole_is_what_h11_writes(
    status: int, fields: list[tuple[bytes, bytes]], body: bytes, counted: bool
) -> None:
    fields = [*fields, (b"content-length", b"%d" % len(body))] if counted else fields
    written = whole_requests.answer(status, fields, body)
    if written is None:
        return
    wire = Wire()
    wire.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    wire.next_event(), wire.next_event()
    sent = wire.send(h11.Response(status_code=status, headers=fields, reason=STATUS_PHRASES[status]))
    assert sent is not None
    assert written == sent + wire.send(h11.Data(data=body)) + wire.send(h11.EndOfMessage())
    assert wire.our_state is h11.DONE, "the connection is kept"


async def odd(scope: Any, receive: Any, send: Any) -> None:
    """Answers as the path says."""
    if scope["type"] != "http":
        return
    await receive()
    name = scope["path"].removeprefix("/")
    if name == "raises":
        raise RuntimeError("of the application")
    headers = [] if name == "chunks" else [(b"content-length", b"2")]
    if name == "closes":
        headers.append((b"connection", b"close"))
    await send(
        {"type": "http.response.start", "status": 204 if name == "bare" else 200, "headers": headers[name == "bare" :]}
    )
    if name == "chunks":
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        await send({"type": "http.response.body", "body": b"k"})
    else:
        await send({"type": "http.response.body", "body": b"" if name == "bare" else b"ok"})


@pytest.mark.parametrize("name", ["plain", "chunks", "bare", "closes", "raises"])
async def test_any_answer_may_follow_a_whole_request(name: str) -> None:
    """What h11 must write is written by h11, and the next request finds the connection as after every other answer."""
    last = b"GET /plain HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with served(odd) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode())
        first = await asyncio.wait_for(reader.read(1000), 20)
        writer.write(last)
        rest = first + await asyncio.wait_for(reader.read(), 20)
        writer.close()
    status = {"bare": b"204", "raises": b"500"}.get(name, b"200")
    assert first.startswith(b"HTTP/1.1 " + status)
    assert (b"transfer-encoding: chunked" in rest.lower()) == (name in ("chunks", "raises"))
    assert rest.count(b"HTTP/1.1 ") == (1 if name in ("closes", "raises") else 2)


async def test_requests_at_once_are_answered_in_their_order() -> None:
    """However they are cut: what comes while one is answered has its turn afterwards."""

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await asyncio.sleep(0.01 if scope["path"].endswith("0") else 0)
        text = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
        await send({"type": "http.response.body", "body": text})

    requests = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(30)]
    requests.append(b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    everything = b"".join(requests)
    chance = random.Random(7)
    async with served(slowly) as port:
        for cuts in (requests, [everything[:40], everything[40:]], None):
            parts = cuts or [bytes(part) for part in _cut(everything, chance)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            got = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            paths = [piece.partition(b"\r\n\r\n")[2] for piece in got.split(b"HTTP/1.1 200 OK\r\n")[1:]]
            assert paths == [b"/%d" % number for number in range(30)] + [b"/last"]


def _cut(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.sample(range(1, len(data)), 25))
    return [data[low:high] for low, high in zip([0, *places], [*places, len(data)], strict=True)]


async def test_a_client_that_ends_its_side_behind_a_second_request_gets_both_answers() -> None:
    one = b"GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served(odd) as port:
        assert (await said(port, one + one, end=True)).count(b"200 OK") == 2
