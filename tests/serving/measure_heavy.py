"""How much a process of the API is held up by the costliest bodies that its settings can allow.

pytest tests/serving/measure_heavy.py -s       # IDEM_SECONDS=10 for each shape, IDEM_CONNECTIONS=20, IDEM_SHAPES

For each shape: how late a heartbeat of 1 ms on the API's loop was, the longest callback of that loop by its CPU time,
and what `GET /readyz` took meanwhile. On a machine that does something else too, only the CPU time says something. Then
what a replay takes on a kept connection, against the first request of a connection. The clients are a process of their
own, which has begun before the heart beats: to start a process took the loop 7 to 30 ms of CPU.
Figures for reading, on a machine that does nothing else; no test asserts them.
"""

import asyncio
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fix_api import client
from fix_spine import Spine

from idem.outbox.config.http_settings import ApiSettings
from idem.outbox.observe import telemetry

SECONDS = float(os.environ.get("IDEM_SECONDS", "10"))
CONNECTIONS = int(os.environ.get("IDEM_CONNECTIONS", "20"))
SIZE = 1_048_576
VALUES = 50_000


def filled(piece: bytes, most: int, begin: bytes = b"[", end: bytes = b"]") -> bytes:
    """As many pieces as fit, with commas between them."""
    count = min(most, (SIZE - 64) // (len(piece) + 1))
    return begin + b",".join([piece] * count) + end


SHAPES: dict[str, Callable[[], bytes]] = {
    "deep": lambda: filled(b"[" * 60 + b"]" * 60, VALUES // 61),
    "many members": lambda: b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(VALUES // 2 - 1)) + b"}",
    "many numbers": lambda: filled(b"1.5", VALUES - 2),
    "long digits": lambda: b"[" + b"1" * (SIZE - 64) + b"]",
    "long fractions": lambda: filled(b"1." + b"0" * 990 + b"5", VALUES // 2),
    "escapes": lambda: b'{"amount":1,"note":"' + b"\\n" * ((SIZE - 64) // 2) + b'"}',
    "an unclosed string": lambda: b"[]" * 70 + b'"' + b'\\"' * ((SIZE - 300) // 2),
    "empty strings": lambda: filled(b'""', VALUES // 2),
    "empty lists": lambda: filled(b"[]", VALUES // 2 - 2),
    "one long string": lambda: b'{"amount":1,"note":"' + b"n" * (SIZE - 64) + b'"}',
    "tiny chunks": lambda: b'{"amount":1,"note":"' + b"n" * (SIZE - 64) + b'"}',
    "tiny segments": lambda: b'{"amount":1,"note":"' + b"n" * (SIZE // 16) + b'"}',
    "groups of digits": lambda: filled(b'"4444 4444 4444 4448"', VALUES // 2),
}


async def answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    await reader.readexactly(length)
    return int(head.split(b" ")[1])


def framed(shape: str, body: bytes) -> bytes:
    """What follows the lines of a head that are the same for all: how the body is sent, and the body."""
    if shape != "tiny chunks":
        return b"Content-Length: %d\r\n\r\n" % len(body) + body
    pieces = (body[at : at + 16] for at in range(0, len(body), 16))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def send(writer: asyncio.StreamWriter, shape: str, message: bytes) -> None:
    """One request: in packets of 64 bytes, or all at once."""
    if shape != "tiny segments":
        writer.write(message)
        return
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(message), 64):
        writer.write(message[at : at + 64])
        await writer.drain()
        await asyncio.sleep(0)


def post(token: str, key: str, framed: bytes) -> bytes:
    return (
        f"POST /v1/intents/pay.keyed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n"
        f"Content-Type: application/json\r\n"
    ).encode() + framed


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


async def clients(url: str, token: str, shape: str, seconds: float, count: int) -> None:
    """The load of one shape, and a probe of /readyz; prints figures as JSON."""
    at, rest, codes, ready = urlsplit(url), framed(shape, SHAPES[shape]()), Counter[int](), list[float]()
    sys.stdin.readline()  # the heart beats now
    until = time.monotonic() + seconds

    async def load() -> None:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        while time.monotonic() < until:
            await send(writer, shape, post(token, uuid.uuid4().hex, rest))
            codes[await answer(reader)] += 1
        writer.close()

    async def probe() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await answer(reader)
            ready.append(time.monotonic() - began)
            writer.close()
            await asyncio.sleep(0.05)

    await asyncio.gather(probe(), *(load() for _ in range(count)))
    figures = {"p50": quantile(ready, 0.5), "p99": quantile(ready, 0.99), "max": quantile(ready, 1.0)}
    sys.stdout.write(json.dumps({"bytes": len(rest), "codes": codes, "probes": len(ready)} | figures))


async def replays(url: str, token: str) -> None:
    """What a replay takes on a kept connection, and as the first request of one; prints figures as JSON."""
    at, message = urlsplit(url), post(token, "replayed", framed("", b'{"amount":100}'))

    async def timed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
        began = time.perf_counter()
        writer.write(message)
        await answer(reader)
        return time.perf_counter() - began

    kept_on = await asyncio.open_connection(at.hostname, at.port)
    await timed(*kept_on)
    kept = [await timed(*kept_on) for _ in range(300)]
    first = []
    for _ in range(300):
        line = await asyncio.open_connection(at.hostname, at.port)
        first.append(await timed(*line))
        line[1].close()
    sys.stdout.write(json.dumps({"kept": statistics.median(kept) * 1000, "kept_p99": quantile(kept, 0.99),
                      "first": statistics.median(first) * 1000}))  # fmt: skip


async def beats(late: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - began - 0.001)


class Longest:
    """The callback of the loop that takes most CPU time; while it is `on`, of every callback."""

    def __init__(self) -> None:
        self.seconds, self.which = 0.0, ""

    @contextmanager
    def on(self) -> Iterator[None]:
        usual: Any = asyncio.Handle._run

        def timed(handle: Any) -> None:
            began = time.thread_time()
            usual(handle)
            if (taken := time.thread_time() - began) > self.seconds:
                self.seconds, self.which = taken, repr(handle._callback)[:60]

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = usual  # type: ignore[method-assign]


async def started(*arguments: str) -> asyncio.subprocess.Process:
    """A process of clients, which begins when it is let."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    await asyncio.sleep(0.5)
    return process


async def finished(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Let it begin; its figures."""
    out, _ = await process.communicate(b"\n")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.timeout(1800)
async def test_what_heavy_bodies_cost_the_others(spine: Spine) -> None:
    telemetry.set_up(json=True, level="error")
    sys.setswitchinterval(0.001)  # as `idem api run` has it
    gc.freeze()
    settings = ApiSettings(port=0, max_body=SIZE, max_values=VALUES, pool=10)
    async with client(spine, settings=settings) as api:
        figures = await finished(await started("replays", api.url, api.token))
        say(f"replay: {figures}, kept to first: {figures['kept'] / figures['first']:.2f}")
        for shape in os.environ.get("IDEM_SHAPES", ",".join(SHAPES)).split(","):
            late, longest, process = list[float](), Longest(), await started("clients", api.url, api.token, shape)
            beating = asyncio.create_task(beats(late))
            with longest.on():
                figures = await finished(process)
            beating.cancel()
            say(f"{shape:20} heartbeat late p50 {quantile(late, 0.5):.1f} p99 {quantile(late, 0.99):.1f} "
                f"max {quantile(late, 1.0):.1f} ms; longest callback {longest.seconds * 1000:.1f} ms of CPU "
                f"({longest.which}); /readyz {figures}")  # fmt: skip


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "clients":
        asyncio.run(clients(*sys.argv[2:5], SECONDS, CONNECTIONS))
    else:
        asyncio.run(replays(*sys.argv[2:4]))
