"""Bodies that nobody has signed yet take a bounded memory, of all connections together: over real sockets."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from fix_desk import Desk
from fix_settings import with_constants
from fix_waiting import until
from fix_webhooks import Hooks, event, hooking, secret, signed, with_events

from idem.outbox.config.http_settings import EndpointSettings
from idem.outbox.http_server import body_memory
from idem.outbox.http_server.serving import serve
from idem.reconciler.webhooks.embedded import Mounted

MIB = 1024 * 1024
ROOM = 2 * MIB
SETTINGS = with_constants(EndpointSettings(pool=4), max_unverified=ROOM, read_timeout=60)
PART = 300_000
_numbers = itertools.count(1)
HEAD = "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\r\n\r\n"


class Slow:
    """A sender that has begun a body and does not end it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def begin(cls, url: str, path: str, *, chunked: bool = False) -> Slow:
        at = urlsplit(url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        length = "transfer-encoding: chunked" if chunked else f"content-length: {MIB}"
        writer.write(HEAD.format(path=path, length=length).encode())
        part = b" " * PART
        writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        await writer.drain()
        return cls(reader, writer)

    async def told(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body of the answer."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = json.loads(await self.reader.readexactly(int(headers["content-length"])))
        return int(head[0].split()[1]), headers, body

    async def close(self) -> None:
        self.writer.close()


@dataclass
class Small:
    """An endpoint that holds 2 MiB of bodies whose signature is not checked, and what it holds."""

    hooks: Hooks
    held: body_memory.BodyMemory


async def filled(found: body_memory.BodyMemory, size: int) -> None:
    """Until so many bytes are held."""
    async with asyncio.timeout(60):
        while found.used != size:
            assert found.used <= found.most
            await asyncio.sleep(0.01)


@pytest.fixture
async def small(desk: Desk) -> AsyncIterator[Small]:
    room = ROOM + next(_numbers)
    async with hooking(desk, SETTINGS.model_copy(update={"max_unverified": room})) as hooks:
        [held] = [each for each in gc.get_objects() if isinstance(each, body_memory.BodyMemory) and each.most == room]
        yield Small(hooks, held)


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_longest_on_their_way_are_503_and_an_honest_sender_is_served(small: Small, chunked: bool) -> None:
    hooks, held = small.hooks, small.held
    senders = []
    for number in range(20):
        senders.append(await Slow.begin(hooks.url, "/webhooks/keyed", chunked=chunked))
        await filled(held, min(number + 1, ROOM // PART) * PART)
    # What it needs is taken from those that have been on their way the longest.
    padded = {**event(None), "padding": "x" * (MIB - 1000)}
    assert (await hooks.send(padded, "evt_1")).json()["fate"] == "unmatched"
    await until(lambda: held.used % PART == 0)
    left = held.used // PART
    assert 0 < left < ROOM // PART
    for sender in senders[:-left]:
        status, headers, body = await sender.told()
        assert (status, body["code"], headers["retry-after"]) == (503, "too_many_bodies", "5")
        assert headers["connection"] == "close"
    assert not any(sender.reader.at_eof() for sender in senders[-left:])
    for sender in senders:
        await sender.close()
    await filled(held, 0)


async def test_what_is_checked_or_refused_holds_nothing(small: Small) -> None:
    hooks, held = small.hooks, small.held
    wrong = json.dumps({"padding": "x" * (MIB - 100)}).encode()
    answers = await asyncio.gather(
        *(hooks.post(wrong, signed(wrong, f"evt_{n}", key=secret("nobody's"))) for n in range(12)),
        hooks.post(b"x" * (MIB + 1), {"content-type": "application/json"}),
        hooks.send(event(None), "evt_good"),
    )
    assert {answer.status_code for answer in answers} <= {200, 401, 413, 503}
    assert [answer.status_code for answer in answers[-2:]] == [413, 200]
    assert held.used == 0


async def test_a_body_of_single_bytes_takes_its_bytes(small: Small) -> None:
    """Many times as many, where each part of a body were kept as it came."""
    hooks, held = small.hooks, small.held
    body = json.dumps(event(None)).encode()
    at = urlsplit(hooks.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in signed(body, "evt_1").items())
    writer.write(f"POST /webhooks/keyed HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(body)}\r\n\r\n".encode())
    for byte in body[:-1]:
        writer.write(bytes([byte]))
        await writer.drain()
    await filled(held, len(body) - 1)
    writer.write(body[-1:])
    assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_mounted_endpoint_is_bounded_too(desk: Desk) -> None:
    desk.spine.catalogue = with_events(desk.spine.catalogue)

    async def opened() -> Any:
        return desk.spine.database

    async def here(work: Any) -> Any:
        return await work

    app = Mounted(opened, here, desk.spine.catalogue, SETTINGS)
    stop, at = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        serve(app, "127.0.0.1", 0, stop, ready=lambda host, port: at.set_result(f"http://{host}:{port}"))
    )
    url = await asyncio.wait_for(at, 10)
    left = ROOM // PART
    senders = []
    for number in range(left + 4):
        senders.append(await Slow.begin(url, "/keyed"))
        await filled(app._memory, min(number + 1, left) * PART)
    for sender in senders[:4]:
        status, headers, body = await sender.told()
        assert (status, body["code"], headers["retry-after"]) == (503, "too_many_bodies", "5")
    for sender in senders:
        await sender.close()
    await filled(app._memory, 0)
    stop.set()
    await asyncio.wait_for(running, 60)
