"""CPU of one call over HTTP: microseconds of this process for `Lane.send`, over plain HTTP and over TLS.

    .venv/bin/python tests/measure/http_calls.py [CALLS]

It prints one line of JSON. A provider in another process answers each POST after 20 ms; 100 calls are in flight. To
compare two trees, run it in each in turn, several times, and compare the medians.
"""

import asyncio
import contextlib
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from fix_certificates import certificate, pem, with_key
from providers.fix_bank import bank

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Account, FrozenRequest
from idem.outbox.domain.outcomes import Succeeded
from idem.outbox.values import clock

LATENCY = 0.02
IN_FLIGHT = 100
BODY = b'{"id": "pay_1", "status": "succeeded", "amount": 1250}'
ANSWER = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n"
    b"Server: stub\r\nRequest-Id: req_1\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
REQUEST = FrozenRequest(
    "POST",
    "/payments",
    {"Content-Type": "application/json", "Idempotency-Key": "0b5f9b7e-2f3a-8c1d-9e4f-112233445566"},
    b'{"amount":1250,"currency":"eur","reference":"order-17"}',
)


class Stub(asyncio.Protocol):
    """Answers each request that ends with a brace, so late."""

    connections = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        Stub.connections += 1

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):
            asyncio.get_running_loop().call_later(LATENCY, self._transport.write, ANSWER)


async def _serve(tell: Connection, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, ssl=tls, backlog=1000)
    tell.send(server.sockets[0].getsockname()[1])
    await loop.run_in_executor(None, tell.recv)
    tell.send(Stub.connections)


def _run(tell: Connection, pair: str | None) -> None:
    tls = None
    if pair is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair)
    asyncio.run(_serve(tell, tls))


@dataclass
class Provider:
    """A provider in a process of its own. `connections`: how many it was given, once it has ended."""

    port: int
    connections: int = 0


@contextlib.contextmanager
def provider(pair: Path | None = None) -> Iterator[Provider]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(theirs, pair and str(pair)), daemon=True)
    process.start()
    running = Provider(ours.recv())
    try:
        yield running
    finally:
        ours.send(None)
        running.connections = ours.recv()
        process.join()


def certificates(folder: Path) -> tuple[Path, Path]:
    """The files of an authority, and of a certificate on P-256 for localhost with its key."""
    own = certificate("an authority")
    folder.joinpath("own.pem").write_bytes(pem(own[0]))
    folder.joinpath("leaf.pem").write_bytes(with_key(*certificate("localhost", own)))
    return folder / "own.pem", folder / "leaf.pem"


def opened(origin: str, authorities: Path | None = None) -> Lane:
    account = Account("main", origin, {"Authorization": "Bearer sk_1"}, authorities=authorities and str(authorities))
    return Lane(bank(accounts={"main": account}), account, slots=IN_FLIGHT, margin=1.0)


async def measure(origin: str, authorities: Path | None, calls: int) -> float:
    lane = opened(origin, authorities)
    left = calls

    async def slot() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            outcome, seen = await lane.send("row", REQUEST, lease_ends=clock.boottime() + 60, start=lambda: True)
            assert isinstance(outcome, Succeeded), (outcome, seen)

    async def all_slots() -> None:
        await asyncio.gather(*(slot() for _ in range(IN_FLIGHT)))

    await all_slots()
    left = calls
    began = time.process_time()
    await all_slots()
    used = time.process_time() - began
    await lane.close()
    return used / calls * 1e6


def main(calls: int) -> None:
    found: dict[str, float] = {"calls": calls}
    with tempfile.TemporaryDirectory() as folder:
        authorities, pair = certificates(Path(folder))
        with provider() as plain:
            found["plain_us"] = asyncio.run(measure(f"http://127.0.0.1:{plain.port}", None, calls))
        with provider(pair) as secure:
            found["tls_us"] = asyncio.run(measure(f"https://localhost:{secure.port}", authorities, calls))
    found["plain_connections"], found["tls_connections"] = plain.connections, secure.connections
    sys.stdout.write(json.dumps({name: round(value, 1) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
