"""What a client sends costs the loop little in one turn, however it is cut, before it is let in and after."""

import asyncio
import logging
from contextlib import closing
from typing import Any

import pytest
from fix_serving import counted, served

from idem.outbox.http_server import connections, framing, slices, transport

HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
GET = b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def reads(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body and says how long it was; `/early` answers before it has read any."""
    if scope["type"] != "http":
        return
    size, status = 0, 401
    if scope["path"] != "/early":
        status, more = 200, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
    said = b"read %d" % size
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


async def exchanged(port: int, *parts: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 30)


def early(rest: bytes) -> bytes:
    return rest.replace(b"/a", b"/early", 1)


async def test_small_chunks_are_read_in_slices_whatever_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all connections together: at n, 2n and 4n chunks the longest turn is the same and the work grows with n."""
    totals = []
    async with served(reads) as port:
        for count in (2000, 4000, 8000):
            body = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"1\r\nx\r\n" * count + LAST
            with counted(monkeypatch) as steps:
                answers = await asyncio.gather(*(exchanged(port, body) for _ in range(5)))
            assert all(answer.endswith(b"read %d" % count) for answer in answers)
            # A slice of one connection, and what others bring that is light.
            assert steps.most <= slices.SLICE // 6 + 10 * (slices.BODY_LINES + 4), count
            totals.append(steps.total)
    assert totals[2] < 2.2 * totals[1] < 4.8 * totals[0]


async def test_a_client_is_served_while_others_send_small_chunks() -> None:
    async with served(reads) as port:
        lines_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in lines_:
            writer.write(CHUNKED + b"1\r\nx\r\n" * 9000)
        for _ in range(5):
            assert (await exchanged(port, GET)).startswith(b"HTTP/1.1 200")
        for _, writer in lines_:
            writer.close()


async def test_nothing_is_parsed_after_an_early_answer_and_the_answer_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(reads) as port:
        with counted(monkeypatch) as steps:
            answer = await exchanged(port, early(CHUNKED), *[b"1\r\nx\r\n" * 100_000] * 4)
    assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" in answer.lower()
    assert answer.endswith(b"read 0") and steps.total < 20


async def test_the_rest_of_a_body_is_forgotten_for_so_many_bytes_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FORGOTTEN", 100_000), ("LINGER", 0.5)):
        with monkeypatch.context() as patched:
            patched.setattr(transport, name, value)
            async with served(reads) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(early(CHUNKED))
                assert (await reader.readuntil(b"read 0")).startswith(b"HTTP/1.1 401")
                with pytest.raises(ConnectionError):
                    async with asyncio.timeout(30):
                        while True:
                            writer.write(b"1\r\nx\r\n" * (10_000 if name == "FORGOTTEN" else 1))
                            await writer.drain()
                            await asyncio.sleep(0.01)
                writer.close()


async def test_who_lingers_makes_room_for_others() -> None:
    async with served(reads, most=3) as port:
        gone = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in gone:
            writer.write(early(CHUNKED))
            await reader.readuntil(b"read 0")
        assert (await exchanged(port, GET)).startswith(b"HTTP/1.1 200")
        for _, writer in gone:
            writer.close()


@pytest.mark.parametrize("size", [1, 2, 6, 64])
async def test_chunks_may_take_so_many_times_the_bytes_of_the_body(size: int) -> None:
    piece = b"%x\r\n%s\r\n" % (size, b"x" * size)
    few, many = 9000 // size, 200_000 // size
    close = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with served(reads) as port:
        assert (await exchanged(port, close + piece * few + LAST)).endswith(b"read %d" % (few * size))
        answer = await exchanged(port, close + piece * many + LAST)
    refused = len(piece) > framing.OVERHEAD * size
    assert answer.startswith(b"HTTP/1.1 400" if refused else b"HTTP/1.1 200")


COSTLY = {
    "many lines of headers": GET[:-2] + b"a:b\r\n" * 6000 + b"\r\n",
    "many lines of headers, not ended": GET[:-2] + b"a:b\r\n" * 6000,
    "an extension of blanks": CHUNKED + b"1;" + b" " * 16_000 + b"\n\r\nx\r\n" + LAST,
    "an extension of tabs and blanks": CHUNKED + b"1;" + b" \t" * 8000 + b"\n\r\nx\r\n" + LAST,
    "an extension that does not end": CHUNKED + b"1;" + b"a" * 5000,
    "many trailers": CHUNKED + b"0\r\n" + b"a:b\r\n" * 6000 + b"\r\n",
    "a long trailer": CHUNKED + b"0\r\na:" + b"b" * 20_000 + b"\r\n\r\n",
    "a long head": GET[:-2] + b"a: " + b"b" * 60_000,
}


@pytest.mark.parametrize("what", COSTLY)
async def test_what_costs_the_parser_much_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = framing.Wire.receive_data

    def receive(self: framing.Wire, data: bytes) -> None:
        seen.append(len(data))
        real(self, data)

    monkeypatch.setattr(framing.Wire, "receive_data", receive)
    async with served(reads) as port:
        answer = await exchanged(port, COSTLY[what])
        assert (await exchanged(port, GET)).startswith(b"HTTP/1.1 200")
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1
    if "blanks" in what:
        assert max(seen[1:]) <= slices.STEP


async def test_a_short_rest_is_read_and_the_connection_kept() -> None:
    async with served(reads) as port:
        answer = await exchanged(port, early(HEAD) + b"Content-Length: 5\r\n\r\n", b"12345", GET)
    assert answer.count(b"HTTP/1.1 ") == 2 and answer.endswith(b"read 0")
    assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" not in answer.lower().split(b"read 0")[0]


@pytest.mark.parametrize("parts", [[b"12"], [b"12", b"345"]])
async def test_a_connection_is_never_without_a_clock_after_an_early_answer(
    parts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With half of the rest the clock of what has begun ends it, with all of it that of an idle connection."""
    monkeypatch.setattr(connections, "HEAD_TIME", 1.0 if len(parts) == 1 else 60.0)
    monkeypatch.setattr(connections, "KEEP_ALIVE", 60.0 if len(parts) == 1 else 1.0)
    async with served(reads) as port:
        answer = await exchanged(port, early(HEAD) + b"Content-Length: 5\r\n\r\n", *parts)
    assert answer.startswith(b"HTTP/1.1 401")


async def test_a_client_that_waits_for_100_hears_it_or_the_end() -> None:
    expecting = HEAD + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    async with served(reads) as port:
        answer = await exchanged(port, early(expecting))
        assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" in answer.lower()
        answer = await exchanged(port, expecting, b"12345", GET)
        assert answer.startswith(b"HTTP/1.1 100") and b"read 5" in answer


async def test_pipelined_requests_are_answered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    many = b"".join(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (n, b"x" * n) for n in range(200))
    async with served(reads) as port:
        with counted(monkeypatch) as steps:
            answer = await exchanged(port, many + GET)
    assert [int(part.split(b"HTTP")[0]) for part in answer.split(b"read ")[1:]] == [*range(200), 0]
    assert steps.most < 100


async def test_a_body_in_one_piece_is_read_whatever_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines and blanks are not the parser's: no slices."""
    for content in (b"\n" * 1_000_000, b" " * 1_000_000):
        head = b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
        async with served(reads) as port:
            with counted(monkeypatch) as steps:
                assert (await exchanged(port, head, content)).endswith(b"read 1000000")
        assert steps.total < 1000


@pytest.mark.parametrize("when", ["while it is read", "after the answer began"])
async def test_a_broken_chunk_ends_in_silence(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """No traceback in the log, whatever the application was doing."""
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))

    async def begins(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if when == "after the answer began":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            while (message := await receive())["type"] != "http.disconnect" and message["more_body"]:
                pass
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    caplog.set_level(logging.ERROR)
    async with served(begins) as port:
        answer = await exchanged(port, CHUNKED, b"1\r\nx\r\n", b"nonsense\r\n" * 3)
    if when == "while it is read":
        assert answer.startswith(b"HTTP/1.1 400")
    assert not failed and not caplog.records
