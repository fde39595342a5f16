"""Raw-socket servers that misbehave, a call with the usual arguments, and a provider that reads JSON.

What is sent byte by byte is the subject here, so these servers are not `fix_server`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from fix_respx import Answer, Mocked, mocking

from idem.outbox.calls.http_call import call
from idem.outbox.calls.kept_connections import KeptConnections
from idem.outbox.calls.name_resolution import Resolver
from idem.outbox.calls.tls_settings import ssl_context
from idem.outbox.domain.contract import Account, Contract, FrozenRequest, Response
from idem.outbox.domain.outcomes import Seen
from idem.outbox.values import clock
from idem.outcomes import Absent, Ambiguous, CouldNotAsk, LookupOutcome, NotExecuted, Outcome, Succeeded
from idem.sending import Question

CONTEXT = ssl_context()
CONTRACT = Contract("bank", connect_timeout=1.0, deadline=2.0)
POST = FrozenRequest("POST", "/payments", {"Idempotency-Key": "k-1"}, b'{"amount": 100}')

OK = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"id": "p-1"}'


@dataclass
class Wire:
    """One connection as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: Server
    head: bytes = b""
    body: bytes = b""

    async def request(self) -> bytes:
        """Read one complete request, count it, and give its head."""
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        length = [line for line in self.head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if length:
            self.body = await self.reader.readexactly(int(length[0].partition(b":")[2]))
        self.server.full.append(self.head + self.body)
        return self.head

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection by RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Wire], Awaitable[None]]


@dataclass
class Server:
    """`full` holds the complete requests, `stray` what `drinks` read; `connections` counts."""

    listening: asyncio.Server = field(init=False)
    port: int = 0
    connections: int = 0
    full: list[bytes] = field(default_factory=list)
    stray: bytes = b""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """`await serve(handler)`: a server on 127.0.0.1 that gives each connection to the handler, then closes it."""
    running: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(handler: Handler, *, tls: ssl.SSLContext | None = None) -> Server:
        server = Server()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            server.connections += 1
            try:
                await handler(Wire(reader, writer, server))
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                server.done.set()
                writer.close()

        server.listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
        running.append(server.listening)
        server.port = server.listening.sockets[0].getsockname()[1]
        return server

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for listening in running:
        listening.close()
    await asyncio.sleep(0)


def does(
    *steps: bytes | float | Literal["reset"], read: int | None = None, drip: bytes = b""
) -> Callable[[Wire], Awaitable[None]]:
    """A server that reads the request, or `read` bytes of it, and then says, waits so many seconds, or resets the line.

    `drip`: at the end it says this for ever, 20 times a second.
    """

    async def does_(wire: Wire) -> None:
        await (wire.request() if read is None else wire.reader.read(read))
        for step in steps:
            if step == "reset":
                wire.reset()
            else:
                await (wire.say(step) if isinstance(step, bytes) else asyncio.sleep(step))
        while drip:
            await wire.say(drip)
            await asyncio.sleep(0.05)

    return does_


answers = does(OK)


async def drinks(wire: Wire) -> None:
    """Takes whatever comes and says nothing, until the other side goes."""
    while data := await wire.reader.read(65536):
        wire.server.stray += data


@pytest.fixture
async def drinking(serve: Callable[..., Awaitable[Server]]) -> Server:
    """A server that takes whatever comes and says nothing."""
    return await serve(drinks)


@pytest.fixture
async def answering(serve: Callable[..., Awaitable[Server]]) -> Server:
    """A server that answers every request."""
    return await serve(answers)


@pytest.fixture
def mocked() -> Iterator[Callable[[Answer], Mocked]]:
    """`mocked(answer)`: a provider without a socket, for what is not about the wire."""
    with mocking() as provider:
        yield provider


class Resolving:
    """Names in the hands of a test: what becomes of one, after so many seconds; nobody may blame the address."""

    def __init__(self, address: Callable[[str], str], seconds: float = 0) -> None:
        self._address, self._seconds = address, seconds

    async def address(self, host: str) -> str:
        await asyncio.sleep(self._seconds)
        return self._address(host)

    def failed(self, host: str, address: str) -> None:
        raise AssertionError("the address is not to blame")


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that raises this."""

    def raises(*_: object) -> Any:
        raise error

    return raises


@pytest.fixture
async def dial() -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`await dial(origin, request, **what_differs)`: a call on a connection of its own, with a lease of a minute.

    `connections`: what keeps them, where calls are to follow each other on one.
    """
    resolver = Resolver()
    kept: list[KeptConnections] = []

    async def make(
        origin: str,
        request: FrozenRequest = POST,
        *,
        contract: Contract = CONTRACT,
        credentials: dict[str, str] | None = None,
        account: Account | None = None,
        connections: KeptConnections | None = None,
        lease: float = 60.0,
        tls: ssl.SSLContext | None = None,
        **more: Any,
    ) -> Any:
        if connections is None:
            connections = KeptConnections(tls or CONTEXT, contract.keep_alive)
        kept.append(connections)
        given = {"margin": 0.5, "start": lambda: True, "mark_start": None, "resolver": resolver, **more}
        if account is None:
            account = Account("main", origin, credentials or {"Authorization": "Bearer sk_secret"})
        return await call(
            connections, account, request, contract=contract, lease_ends=clock.boottime() + lease, **given
        )

    yield make
    for connections in kept:
        connections.close()
    resolver.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate and its key for the name `api.test`, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=api.test"
    made = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [openssl, *command.split(), "-addext", "subjectAltName=DNS:api.test", "-keyout", made[0], "-out", made[1]],
        check=True,
        capture_output=True,
    )
    both = tmp_path / "both.pem"
    both.write_text(made[0].read_text() + made[1].read_text())
    return both


@dataclass
class Bank:
    """A provider whose answers say what they mean: {"id": ...} succeeded, 401 config, 404 absent."""

    contract: Contract
    account: Account
    paths: tuple[str, ...] = ("/payments/by-key",)

    @property
    def accounts(self) -> dict[str, Account]:
        return {self.account.name: self.account}

    def freeze(self, request: Any, provider_key: str) -> FrozenRequest:
        raise NotImplementedError

    def classify(self, response: Response) -> tuple[Outcome, Seen]:
        if response.status == 401:
            return NotExecuted("config"), Seen()
        if response.status == 201 and response.complete:
            return Succeeded(json.loads(response.body)["id"]), Seen(code="created")
        return Ambiguous(), Seen()

    def questions(self, question: Question) -> tuple[FrozenRequest, ...]:
        return tuple(FrozenRequest("GET", path, {}, b"") for path in self.paths)

    def read_lookup(
        self, response: Response, question: Question, request: FrozenRequest | None = None
    ) -> tuple[LookupOutcome, Seen]:
        if response.status == 404:
            return Absent(), Seen()
        if response.status == 201:
            return Succeeded("p-1"), Seen()
        return CouldNotAsk(), Seen()

    def next_page(self, response: Response, question: Question, request: FrozenRequest) -> FrozenRequest | None:
        return None


@pytest.fixture
def bank() -> Callable[..., Bank]:
    def make(origin: str, *, contract: Contract = CONTRACT, **more: Any) -> Bank:
        return Bank(contract, Account("main", origin, {"Authorization": "Bearer sk_secret"}), **more)

    return make
